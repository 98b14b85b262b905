#include <spillway/app/data/augment.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace spillway::app {
namespace {

// Keeps these streams apart from those of other users of the seed; views are numbered from here.
constexpr std::uint32_t kAugmentPurpose = 0x41000000U;

float symmetric(CounterRng& rng, double half_width) noexcept {
  return static_cast<float>(half_width) * (2.0F * rng.uniform() - 1.0F);
}

float symmetric_radians(CounterRng& rng, double half_width_degrees) noexcept {
  return symmetric(rng, half_width_degrees * std::numbers::pi / 180.0);
}

/// Maps a pixel of the result, relative to the centre, to the point of the source that is shown there.
struct InverseMap {
  float xx, xy, yx, yy;  ///< Row by row: source x from (x, y), source y from (x, y).
  float shift_x, shift_y;
};

InverseMap inverse_map(const AugmentParameters& p, float width, float height) noexcept {
  // Forward: shear along x, then scale, rotate and shift. With y downwards a counter-clockwise turn is (c, s; -s, c).
  const float c = std::cos(p.rotation) / p.scale;
  const float s = std::sin(p.rotation) / p.scale;
  const float k = std::tan(p.shear);
  return {c - k * s, -s - k * c, s, c, p.translate_x * width, p.translate_y * height};
}

float pixel(std::span<const float> image, std::int64_t width, std::int64_t height, std::int64_t x,
            std::int64_t y) noexcept {
  return x >= 0 && y >= 0 && x < width && y < height ? image[static_cast<std::size_t>(y * width + x)] : 0.0F;
}

float bilinear(std::span<const float> image, std::int64_t width, std::int64_t height, float x, float y) noexcept {
  const float left = std::floor(x);
  const float top = std::floor(y);
  const float right_share = x - left;
  const float bottom_share = y - top;
  const auto column = static_cast<std::int64_t>(left);
  const auto row = static_cast<std::int64_t>(top);
  const float upper = pixel(image, width, height, column, row) * (1.0F - right_share) +
                      pixel(image, width, height, column + 1, row) * right_share;
  const float lower = pixel(image, width, height, column, row + 1) * (1.0F - right_share) +
                      pixel(image, width, height, column + 1, row + 1) * right_share;
  return upper * (1.0F - bottom_share) + lower * bottom_share;
}

void warp(std::span<const float> image, std::span<float> out, std::uint32_t width,
          const AugmentParameters& parameters) noexcept {
  const auto columns = static_cast<std::int64_t>(width);
  const auto rows = static_cast<std::int64_t>(image.size() / width);
  const InverseMap map = inverse_map(parameters, static_cast<float>(columns), static_cast<float>(rows));
  const float centre_x = static_cast<float>(columns - 1) / 2.0F;
  const float centre_y = static_cast<float>(rows - 1) / 2.0F;
  std::size_t index = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const float y = static_cast<float>(row) - centre_y - map.shift_y;
    for (std::int64_t column = 0; column < columns; ++column) {
      const float x = static_cast<float>(column) - centre_x - map.shift_x;
      out[index++] =
          bilinear(image, columns, rows, map.xx * x + map.xy * y + centre_x, map.yx * x + map.yy * y + centre_y);
    }
  }
}

void add_noise(std::span<float> image, float deviation, CounterRng& rng) noexcept {
  for (std::size_t index = 0; index < image.size(); index += 2) {
    const std::array<float, 2> pair = rng.normals();
    image[index] += deviation * pair[0];
    if (index + 1 < image.size()) {
      image[index + 1] += deviation * pair[1];
    }
  }
}

}  // namespace

AugmentParameters draw_augmentation(const AugmentConfig& config, CounterRng& rng) noexcept {
  // One statement each: the order of draws is part of the result.
  AugmentParameters drawn;
  drawn.rotation = symmetric_radians(rng, config.rotation_degrees);
  drawn.translate_x = symmetric(rng, config.translate);
  drawn.translate_y = symmetric(rng, config.translate);
  drawn.scale = rng.uniform(static_cast<float>(config.scale_min), static_cast<float>(config.scale_max));
  drawn.shear = symmetric_radians(rng, config.shear_degrees);
  drawn.contrast = 1.0F + symmetric(rng, config.contrast);
  drawn.brightness = symmetric(rng, config.brightness);
  drawn.noise = rng.uniform(0.0F, static_cast<float>(config.noise));
  return drawn;
}

void apply_augmentation(std::span<const float> image, std::span<float> out, std::uint32_t width,
                        const AugmentParameters& parameters, CounterRng& rng) noexcept {
  warp(image, out, width, parameters);
  for (float& value : out) {
    value = value * parameters.contrast + parameters.brightness;
  }
  if (parameters.noise > 0.0F) {
    add_noise(out, parameters.noise, rng);
  }
  for (float& value : out) {
    value = std::clamp(value, 0.0F, 1.0F);
  }
}

void augment(std::span<const float> image, std::span<float> out, std::uint32_t width, const AugmentConfig& config,
             const ViewName& name) noexcept {
  if (!config.enabled) {
    std::copy(image.begin(), image.end(), out.begin());
    return;
  }
  CounterRng rng({name.seed, kAugmentPurpose + name.view, name.epoch, name.sample});
  const AugmentParameters parameters = draw_augmentation(config, rng);
  apply_augmentation(image, out, width, parameters, rng);
}

}  // namespace spillway::app

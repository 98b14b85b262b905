#include <spillway/app/data/image_ops.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace spillway::app {
namespace {

constexpr std::array<float, 3> kGreyWeights = {0.2989F, 0.587F, 0.114F};

float unit(float value) noexcept { return std::min(std::max(value, 0.0F), 1.0F); }

/// How the pixels of one axis are averaged into those of the result.
struct AxisWeights {
  std::vector<std::uint32_t> first;  ///< Of each result: the first source that counts.
  std::vector<float> weights;        ///< [results, taps]; the last ones may be 0.
  std::uint32_t taps = 0;
};

AxisWeights axis_weights(double begin, double length, std::uint32_t source, std::uint32_t results) {
  const double scale = length / results;
  const double support = std::max(scale, 1.0);
  const auto low = static_cast<std::int64_t>(std::floor(begin));
  const auto high = std::min<std::int64_t>(source, static_cast<std::int64_t>(std::ceil(begin + length)));
  AxisWeights axis;
  axis.taps = std::min(source, static_cast<std::uint32_t>(std::ceil(support)) * 2 + 1);
  axis.weights.resize(std::size_t{results} * axis.taps);
  for (std::uint32_t result = 0; result < results; ++result) {
    const double centre = begin + (result + 0.5) * scale;
    const auto from = std::max(low, static_cast<std::int64_t>(std::floor(centre - support + 0.5)));
    const auto to = std::min(high, static_cast<std::int64_t>(std::floor(centre + support + 0.5)));
    // Taps past the end of the source have weight 0, and are moved to where there is something to read.
    const auto first = std::clamp<std::int64_t>(from, 0, std::int64_t{source} - axis.taps);
    float* const weights = axis.weights.data() + std::size_t{result} * axis.taps;
    double sum = 0.0;
    for (std::int64_t at = from; at < to; ++at) {
      sum += std::max(0.0, 1.0 - std::abs((static_cast<double>(at) + 0.5 - centre) / support));
    }
    for (std::int64_t at = from; at < to; ++at) {
      const double weight = std::max(0.0, 1.0 - std::abs((static_cast<double>(at) + 0.5 - centre) / support));
      weights[at - first] = static_cast<float>(weight / sum);
    }
    axis.first.push_back(static_cast<std::uint32_t>(first));
  }
  return axis;
}

/// A row of the result before it is averaged along the row, interleaved as the source is, from column `left` on.
void average_rows(const Image& image, std::uint32_t left, std::uint32_t first, std::span<const float> weights,
                  std::span<float> row) {
  const std::size_t stride = std::size_t{image.width} * image.channels;
  std::ranges::fill(row, 0.0F);
  for (std::size_t tap = 0; tap < weights.size(); ++tap) {
    const float weight = weights[tap] / 255.0F;
    if (weight == 0.0F) continue;
    const std::uint8_t* const source =
        image.pixels.data() + (first + tap) * stride + std::size_t{left} * image.channels;
    for (std::size_t i = 0; i < row.size(); ++i) row[i] += weight * static_cast<float>(source[i]);
  }
}

template <std::size_t kChannels>
void average_columns(std::span<const float> row, const AxisWeights& axis, float* out, std::size_t plane) {
  for (std::size_t column = 0; column < axis.first.size(); ++column) {
    const float* const weights = axis.weights.data() + column * axis.taps;
    const float* const source = row.data() + std::size_t{axis.first[column]} * kChannels;
    std::array<float, kChannels> sums{};
    for (std::uint32_t tap = 0; tap < axis.taps; ++tap) {
      for (std::size_t channel = 0; channel < kChannels; ++channel) {
        sums[channel] += weights[tap] * source[tap * kChannels + channel];
      }
    }
    for (std::size_t channel = 0; channel < kChannels; ++channel) out[channel * plane + column] = sums[channel];
  }
}

float grey_of(float red, float green, float blue) noexcept {
  return kGreyWeights[0] * red + kGreyWeights[1] * green + kGreyWeights[2] * blue;
}

float grey_of(const float* red, std::size_t plane, std::size_t at) noexcept {
  return grey_of(red[at], red[plane + at], red[2 * plane + at]);
}

/// change(red, green, blue) of each pixel of a colour image; grey ones stay.
template <typename Change>
void each_pixel(const Planes& image, const Change& change) noexcept {
  if (image.channels == 1) return;
  const std::size_t plane = image.plane();
  float* const red = image.values.data();
  float* const green = red + plane;
  float* const blue = green + plane;
  for (std::size_t i = 0; i < plane; ++i) change(red[i], green[i], blue[i]);
}

/// Sums in lanes, which a compiler may keep in vectors.
float mean_of_grey(const Planes& image) noexcept {
  constexpr std::size_t kLanes = 8;
  std::array<float, kLanes> lanes{};
  double sum = 0.0;
  const std::size_t plane = image.plane();
  const float* const values = image.values.data();
  for (std::size_t row = 0; row < plane; row += image.width) {
    lanes.fill(0.0F);
    const std::size_t whole = image.width / kLanes * kLanes;
    for (std::size_t at = row; at < row + whole; at += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += image.channels == 1 ? values[at + lane] : grey_of(values, plane, at + lane);
      }
    }
    for (std::size_t at = row + whole; at < row + image.width; ++at) {
      lanes[0] += image.channels == 1 ? values[at] : grey_of(values, plane, at);
    }
    for (const float lane : lanes) sum += lane;
  }
  return static_cast<float>(sum / static_cast<double>(plane));
}

/// One channel of hsv2rgb: n is 5 for red, 3 for green, 1 for blue.
float from_hue(float n, float hue6, float value, float chroma) noexcept {
  float k = n + hue6;
  k = k >= 6.0F ? k - 6.0F : k;
  const float share = std::min(std::max(std::min(k, 4.0F - k), 0.0F), 1.0F);
  return unit(value - chroma * share);
}

std::vector<float> gaussian(std::uint32_t taps, float sigma) {
  std::vector<float> kernel(taps);
  float sum = 0.0F;
  for (std::uint32_t tap = 0; tap < taps; ++tap) {
    const float x = (static_cast<float>(tap) - static_cast<float>(taps - 1) / 2.0F) / sigma;
    sum += kernel[tap] = std::exp(-0.5F * x * x);
  }
  for (float& weight : kernel) weight /= sum;
  return kernel;
}

std::size_t mirrored(std::int64_t at, std::int64_t size) noexcept {
  if (at < 0) at = -at;
  if (at >= size) at = 2 * (size - 1) - at;
  return static_cast<std::size_t>(std::clamp<std::int64_t>(at, 0, size - 1));
}

}  // namespace

void resized_crop(const Image& image, const CropBox& box, const Planes& out) {
  const AxisWeights rows = axis_weights(box.y, box.height, image.height, out.height);
  AxisWeights columns = axis_weights(box.x, box.width, image.width, out.width);
  const std::uint32_t left = columns.first.front();
  std::vector<float> row(std::size_t{columns.first.back() + columns.taps - left} * image.channels);
  for (std::uint32_t& first : columns.first) first -= left;
  for (std::uint32_t y = 0; y < out.height; ++y) {
    average_rows(image, left, rows.first[y], {rows.weights.data() + std::size_t{y} * rows.taps, rows.taps}, row);
    float* const target = out.values.data() + std::size_t{y} * out.width;
    if (image.channels == 1) {
      average_columns<1>(row, columns, target, out.plane());
    } else {
      average_columns<3>(row, columns, target, out.plane());
    }
  }
}

void flip_horizontally(const Planes& image) noexcept {
  for (std::size_t row = 0; row < image.values.size(); row += image.width) {
    const std::span<float> values = image.values.subspan(row, image.width);
    std::ranges::reverse(values);
  }
}

void adjust_brightness(const Planes& image, float factor) noexcept {
  for (float& value : image.values) value = unit(value * factor);
}

void adjust_contrast(const Planes& image, float factor) noexcept {
  const float rest = (1.0F - factor) * mean_of_grey(image);
  for (float& value : image.values) value = unit(factor * value + rest);
}

void adjust_saturation(const Planes& image, float factor) noexcept {
  each_pixel(image, [factor](float& red, float& green, float& blue) {
    const float rest = (1.0F - factor) * grey_of(red, green, blue);
    red = unit(factor * red + rest);
    green = unit(factor * green + rest);
    blue = unit(factor * blue + rest);
  });
}

void adjust_hue(const Planes& image, float shift) noexcept {
  each_pixel(image, [shift](float& red, float& green, float& blue) {
    const float r = red;
    const float g = green;
    const float b = blue;
    const float value = std::max(r, std::max(g, b));
    const float chroma = value - std::min(r, std::min(g, b));
    const float inverse = 1.0F / (chroma == 0.0F ? 1.0F : chroma);
    const float by_red = (g - b) * inverse;
    const float by_green = (b - r) * inverse + 2.0F;
    const float by_blue = (r - g) * inverse + 4.0F;
    float hue6 = value == r ? by_red : value == g ? by_green : by_blue;  // In [-1, 5].
    hue6 += 6.0F * shift;
    hue6 = hue6 < 0.0F ? hue6 + 6.0F : hue6;
    hue6 = hue6 >= 6.0F ? hue6 - 6.0F : hue6;
    red = from_hue(5.0F, hue6, value, chroma);
    green = from_hue(3.0F, hue6, value, chroma);
    blue = from_hue(1.0F, hue6, value, chroma);
  });
}

void to_grayscale(const Planes& image) noexcept {
  each_pixel(image, [](float& red, float& green, float& blue) { red = green = blue = grey_of(red, green, blue); });
}

void gaussian_blur(const Planes& image, std::uint32_t taps, float sigma) {
  const std::vector<float> kernel = gaussian(taps, sigma);
  const std::int64_t half = taps / 2;
  const std::size_t width = image.width;
  std::vector<float> padded(width + taps - 1);
  std::vector<float> along(image.plane());
  for (std::uint32_t channel = 0; channel < image.channels; ++channel) {
    float* const plane = image.values.data() + channel * image.plane();
    for (std::size_t row = 0; row < image.height; ++row) {
      const float* const source = plane + row * width;
      for (std::size_t i = 0; i < padded.size(); ++i) {
        padded[i] = source[mirrored(static_cast<std::int64_t>(i) - half, image.width)];
      }
      float* const target = along.data() + row * width;
      std::fill_n(target, width, 0.0F);
      for (std::size_t tap = 0; tap < taps; ++tap) {
        const float weight = kernel[tap];
        const float* const shifted = padded.data() + tap;
        for (std::size_t x = 0; x < width; ++x) target[x] += weight * shifted[x];
      }
    }
    for (std::size_t row = 0; row < image.height; ++row) {
      float* const target = plane + row * width;
      std::fill_n(target, width, 0.0F);
      for (std::size_t tap = 0; tap < taps; ++tap) {
        const std::size_t from = mirrored(static_cast<std::int64_t>(row + tap) - half, image.height);
        const float weight = kernel[tap];
        const float* const source = along.data() + from * width;
        for (std::size_t x = 0; x < width; ++x) target[x] += weight * source[x];
      }
    }
  }
}

void solarize(const Planes& image, float threshold) noexcept {
  for (float& value : image.values) value = value >= threshold ? 1.0F - value : value;
}

}  // namespace spillway::app

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <spillway/app/data/augment.hpp>
#include <spillway/app/data/counter_rng.hpp>
#include <spillway/app/data/dataset.hpp>

namespace spillway::app {
namespace {

constexpr std::uint32_t kPatternPurpose = 0x53000000U;
constexpr std::uint32_t kImagePurpose = 0x53000001U;
constexpr int kBlobs = 5;
// How much the images of a class differ; mild beside what augmentation does.
const AugmentConfig kVariation{.rotation_degrees = 10.0,
                               .translate = 0.08,
                               .scale_min = 0.9,
                               .scale_max = 1.1,
                               .shear_degrees = 5.0,
                               .contrast = 0.2,
                               .brightness = 0.0,
                               .noise = 0.05};

std::vector<float> class_pattern(std::uint32_t side, std::uint64_t seed, std::uint32_t label) {
  CounterRng rng({seed, kPatternPurpose, 0, label});
  std::vector<float> pattern(std::size_t{side} * side, 0.0F);
  const auto extent = static_cast<float>(side);
  for (int blob = 0; blob < kBlobs; ++blob) {
    const float centre_x = rng.uniform(0.2F, 0.8F) * extent;
    const float centre_y = rng.uniform(0.2F, 0.8F) * extent;
    const float width = rng.uniform(0.06F, 0.14F) * extent;
    for (std::uint32_t row = 0; row < side; ++row) {
      for (std::uint32_t column = 0; column < side; ++column) {
        const float x = static_cast<float>(column) - centre_x;
        const float y = static_cast<float>(row) - centre_y;
        pattern[std::size_t{row} * side + column] += std::exp(-(x * x + y * y) / (2.0F * width * width));
      }
    }
  }
  return pattern;
}

}  // namespace

ImageSet make_synthetic(const SyntheticConfig& config, std::uint64_t seed) {
  const auto side = static_cast<std::uint32_t>(config.side);
  const auto images = static_cast<std::uint32_t>(config.images);
  const auto classes = static_cast<std::uint32_t>(config.classes);
  ImageSet set{.width = side, .height = side};
  std::vector<float> pattern;
  std::vector<float> image(std::size_t{side} * side);
  for (std::uint32_t index = 0; index < images; ++index) {
    // Classes one after the other, of equal size but for a remainder that is spread.
    const auto label = static_cast<std::uint16_t>(std::uint64_t{index} * classes / images);
    if (set.labels.empty() || set.labels.back() != label) {
      pattern = class_pattern(side, seed, label);
    }
    CounterRng rng({seed, kImagePurpose, 0, index});
    const AugmentParameters parameters = draw_augmentation(kVariation, rng);
    apply_augmentation(pattern, image, side, parameters, rng);
    for (const float value : image) {
      set.pixels.push_back(static_cast<std::uint8_t>(std::lround(255.0F * value)));
    }
    set.labels.push_back(label);
  }
  return set;
}

}  // namespace spillway::app

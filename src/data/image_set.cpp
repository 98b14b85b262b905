#include <spillway/app/data/image_set.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace spillway::app {
namespace {

void append_image(ImageSet& to, const ImageSet& from, std::uint32_t index) {
  const std::span<const std::uint8_t> image = from.image(index);
  to.pixels.insert(to.pixels.end(), image.begin(), image.end());
  to.labels.push_back(from.labels[index]);
}

}  // namespace

void ImageSet::copy_scaled(std::uint32_t index, std::span<float> out) const noexcept {
  const float scale = 1.0F / static_cast<float>(peak);
  std::ranges::transform(image(index), out.begin(),
                         [scale](std::uint8_t value) { return scale * static_cast<float>(value); });
}

std::uint32_t class_count(const ImageSet& set) noexcept {
  return set.labels.empty() ? 0U : 1U + std::ranges::max(set.labels);
}

SplitImages split_by_class(const ImageSet& set, double train_fraction) {
  std::vector<std::uint32_t> left(class_count(set), 0);
  for (const std::uint16_t label : set.labels) {
    ++left[label];
  }
  for (std::uint32_t& count : left) {
    count = static_cast<std::uint32_t>(std::lround(train_fraction * count));
  }
  SplitImages split;
  split.train = {set.width, set.height, {}, {}, set.peak};
  split.test = split.train;
  for (std::uint32_t index = 0; index < set.size(); ++index) {
    std::uint32_t& to_train = left[set.labels[index]];
    append_image(to_train > 0 ? split.train : split.test, set, index);
    to_train -= to_train > 0 ? 1U : 0U;
  }
  return split;
}

}  // namespace spillway::app

#include <spillway/app/data/image_set.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include <spillway/offload/checksum.hpp>

namespace spillway::app {
namespace {

void append_image(ImageSet& to, const ImageSet& from, std::uint32_t index) {
  if (from.files.empty()) {
    const std::span<const std::uint8_t> image = from.image(index);
    to.pixels.insert(to.pixels.end(), image.begin(), image.end());
  } else {
    to.files.push_back(from.files[index]);
  }
  to.labels.push_back(from.labels[index]);
}

}  // namespace

void ImageSet::copy_scaled(std::uint32_t index, std::span<float> out) const noexcept {
  const float scale = 1.0F / static_cast<float>(peak);
  std::ranges::transform(image(index), out.begin(),
                         [scale](std::uint8_t value) { return scale * static_cast<float>(value); });
}

ImageSet grey_set(ImageSet set) {
  if (set.channels == 1) return set;
  const std::size_t plane = std::size_t{set.width} * set.height;
  for (std::size_t image = 0; image < (set.files.empty() ? set.labels.size() : 0); ++image) {
    const std::uint8_t* const colour = set.pixels.data() + image * 3 * plane;
    for (std::size_t i = 0; i < plane; ++i) {
      set.pixels[image * plane + i] = luma(colour[i], colour[plane + i], colour[2 * plane + i]);
    }
  }
  set.pixels.resize(set.pixels.size() / 3);
  set.channels = 1;
  return set;
}

std::uint32_t class_count(const ImageSet& set) noexcept {
  return set.labels.empty() ? 0U : 1U + std::ranges::max(set.labels);
}

std::uint64_t contents_hash(const SplitImages& images) {
  std::uint64_t hash = 0;
  for (const ImageSet* set : {&images.train, &images.test}) {
    hash = offload::xxh3_64(std::as_bytes(std::span(set->pixels)), hash);
    hash = offload::xxh3_64(std::as_bytes(std::span(set->labels)), hash);
    for (const std::filesystem::path& file : set->files) {
      const std::string name = (file.parent_path().filename() / file.filename()).string();
      hash = offload::xxh3_64(std::as_bytes(std::span(name)), hash);
    }
  }
  return hash;
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
  split.train = {set.width, set.height, {}, {}, set.peak, set.channels, {}};
  split.test = split.train;
  for (std::uint32_t index = 0; index < set.size(); ++index) {
    std::uint32_t& to_train = left[set.labels[index]];
    append_image(to_train > 0 ? split.train : split.test, set, index);
    to_train -= to_train > 0 ? 1U : 0U;
  }
  return split;
}

}  // namespace spillway::app

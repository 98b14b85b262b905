#include <spillway/app/data/batches.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

#include <ATen/ops/empty.h>

#include <spillway/app/data/augment.hpp>

namespace spillway::app {
namespace {

at::Tensor empty_images(const ImageSet& set, std::size_t count) {
  return at::empty({static_cast<std::int64_t>(count), 1, set.height, set.width}, at::kFloat);
}

std::span<float> image_of(const at::Tensor& images, std::size_t index, std::size_t numel) {
  return {images.mutable_data_ptr<float>() + index * numel, numel};
}

}  // namespace

at::Tensor make_view(const ImageSet& set, std::span<const std::uint32_t> samples, const AugmentConfig& config,
                     const BatchView& which) {
  at::Tensor images = empty_images(set, samples.size());
  std::vector<float> plain(set.image_numel());
  for (std::size_t place = 0; place < samples.size(); ++place) {
    set.copy_scaled(samples[place], plain);
    augment(plain, image_of(images, place, plain.size()), set.width, config,
            {which.seed, which.epoch, samples[place], which.view});
  }
  return images;
}

at::Tensor make_images(const ImageSet& set) {
  at::Tensor images = empty_images(set, set.size());
  for (std::uint32_t index = 0; index < set.size(); ++index) {
    set.copy_scaled(index, image_of(images, index, set.image_numel()));
  }
  return images;
}

at::Tensor make_labels(const ImageSet& set, std::span<const std::uint32_t> samples) {
  at::Tensor labels = at::empty({static_cast<std::int64_t>(samples.size())}, at::kLong);
  std::ranges::transform(samples, labels.mutable_data_ptr<std::int64_t>(),
                         [&](std::uint32_t sample) { return std::int64_t{set.labels[sample]}; });
  return labels;
}

at::Tensor make_labels(const ImageSet& set) {
  at::Tensor labels = at::empty({set.size()}, at::kLong);
  std::ranges::copy(set.labels, labels.mutable_data_ptr<std::int64_t>());
  return labels;
}

}  // namespace spillway::app

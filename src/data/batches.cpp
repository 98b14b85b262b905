#include <spillway/app/data/batches.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

#include <ATen/ops/empty.h>

#include <spillway/app/data/work_data_reader.hpp>

namespace spillway::app {
namespace {

constexpr unsigned kImageThreads = 4;  // That read files to evaluate on.

at::Tensor empty_images(const ImageSet& set, std::size_t count) {
  return at::empty({static_cast<std::int64_t>(count), set.channels, set.height, set.width}, at::kFloat);
}

std::span<float> image_of(const at::Tensor& images, std::size_t index, std::size_t numel) {
  return {images.mutable_data_ptr<float>() + index * numel, numel};
}

}  // namespace

at::Tensor make_view(const ViewMaker& views, std::span<const std::uint32_t> samples, const BatchView& which) {
  at::Tensor images = empty_images(views.set(), samples.size());
  for (std::size_t place = 0; place < samples.size(); ++place) {
    const std::array image = {image_of(images, place, views.set().image_numel())};
    views.make({which.seed, which.epoch, samples[place], which.view}, image);
  }
  return images;
}

at::Tensor make_images(const ImageSet& set, std::uint32_t first, std::uint32_t count) {
  at::Tensor images = empty_images(set, count);
  const ViewMaker views(set, {}, Method::kMoco);
  read_each(count, set.files.empty() ? 1 : kImageThreads, [&](std::uint64_t index) {
    views.plain(first + static_cast<std::uint32_t>(index), image_of(images, index, set.image_numel()));
  });
  return images;
}

at::Tensor make_images(const ImageSet& set) { return make_images(set, 0, set.size()); }

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

#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/image_set.hpp>
#include <spillway/app/data/view_maker.hpp>

namespace spillway::app {

/// Which augmented view of its samples a batch holds.
struct BatchView {
  std::uint64_t seed = 0;
  std::uint32_t epoch = 0;
  std::uint32_t view = 0;
};

/// Augmented images as [samples, channels, H, W] float32 in [0, 1], on the CPU. A sample's pixels depend on `which`,
/// its index and the configuration alone, not on the batch that it is in.
[[nodiscard]] at::Tensor make_view(const ViewMaker& views, std::span<const std::uint32_t> samples,
                                   const BatchView& which);

/// `count` images from `first` on, not augmented: [count, channels, H, W] float32 in [0, 1], on the CPU.
[[nodiscard]] at::Tensor make_images(const ImageSet& set, std::uint32_t first, std::uint32_t count);
/// The whole set.
[[nodiscard]] at::Tensor make_images(const ImageSet& set);

/// The labels of `samples`: [samples] int64, on the CPU.
[[nodiscard]] at::Tensor make_labels(const ImageSet& set, std::span<const std::uint32_t> samples);

/// The labels of the whole set: [size] int64, on the CPU.
[[nodiscard]] at::Tensor make_labels(const ImageSet& set);

}  // namespace spillway::app

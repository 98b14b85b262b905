#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace spillway::app {

/// Grey images of one size with a label each. Plain data; immutable once loaded.
struct ImageSet {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<std::uint8_t> pixels{};   ///< [size, height, width], row-major.
  std::vector<std::uint16_t> labels{};  ///< [size].
  std::uint8_t peak = 255;              ///< The value that stands for full intensity.

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(labels.size()); }
  [[nodiscard]] std::uint32_t image_numel() const noexcept { return width * height; }
  /// The bytes of image `index`. `index` is below size().
  [[nodiscard]] std::span<const std::uint8_t> image(std::uint32_t index) const noexcept {
    return std::span(pixels).subspan(std::size_t{index} * image_numel(), image_numel());
  }
  /// Writes image `index` as float32 in [0, 1]: byte / peak. `out` has image_numel() elements.
  void copy_scaled(std::uint32_t index, std::span<float> out) const noexcept;

  bool operator==(const ImageSet&) const = default;
};

/// One more than the largest label; 0 for an empty set.
[[nodiscard]] std::uint32_t class_count(const ImageSet& set) noexcept;

/// A set to train on and one to test on, of one geometry and one peak.
struct SplitImages {
  ImageSet train;
  ImageSet test;
};

/// Splits class by class, in the order of the set: of n images of a class the first round(n * train_fraction) are
/// trained on. Needs no seed, and gives 400 and 100 images of each class of MNIST-5k at 0.8.
/// @param train_fraction  In (0, 1).
[[nodiscard]] SplitImages split_by_class(const ImageSet& set, double train_fraction);

}  // namespace spillway::app

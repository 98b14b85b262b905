#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include <spillway/app/data/image.hpp>

namespace spillway::app {

/// Images with a label each: all in memory, of one size; or files, decoded when they are asked for (`files`), of any
/// size, which are brought to one. Plain data; immutable once loaded.
struct ImageSet {
  std::uint32_t width = 0;  ///< As the encoder sees them.
  std::uint32_t height = 0;
  std::vector<std::uint8_t> pixels{};   ///< [size, channels, height, width], row-major; empty where there are files.
  std::vector<std::uint16_t> labels{};  ///< [size].
  std::uint8_t peak = 255;              ///< The value that stands for full intensity.
  std::uint32_t channels = 1;           ///< 1: grey; 3: red, green, blue.
  std::vector<std::filesystem::path> files{};  ///< [size], or empty.

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(labels.size()); }
  /// As the encoder sees it, of all channels.
  [[nodiscard]] std::uint32_t image_numel() const noexcept { return channels * width * height; }
  /// The bytes of image `index`, which is below size(). Not of files.
  [[nodiscard]] std::span<const std::uint8_t> image(std::uint32_t index) const noexcept {
    return std::span(pixels).subspan(std::size_t{index} * image_numel(), image_numel());
  }
  /// Writes image `index` as float32 in [0, 1]: byte / peak. `out` has image_numel() elements. Not of files.
  void copy_scaled(std::uint32_t index, std::span<float> out) const noexcept;

  bool operator==(const ImageSet&) const = default;
};

/// The set in grey. Files are made grey when they are decoded.
[[nodiscard]] ImageSet grey_set(ImageSet set);

/// One more than the largest label; 0 for an empty set.
[[nodiscard]] std::uint32_t class_count(const ImageSet& set) noexcept;

/// A set to train on and one to test on, of one geometry and one peak.
struct SplitImages {
  ImageSet train;
  ImageSet test;
};

/// A hash of what is in both sets, of files their names and those of their folders: equal on all ranks of a
/// run, unless they see different files.
[[nodiscard]] std::uint64_t contents_hash(const SplitImages& images);

/// Splits class by class, in the order of the set: of n images of a class the first round(n * train_fraction) are
/// trained on. Needs no seed, and gives 400 and 100 images of each class of MNIST-5k at 0.8.
/// @param train_fraction  In (0, 1).
[[nodiscard]] SplitImages split_by_class(const ImageSet& set, double train_fraction);

}  // namespace spillway::app

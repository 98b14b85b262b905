#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/augment.hpp>
#include <spillway/app/data/crop_augment.hpp>
#include <spillway/app/data/image_set.hpp>

namespace spillway::app {

/// Makes the encoder's input from the images of a set: reads, decodes, augments. Immutable; any thread may call it.
class ViewMaker {
 public:
  /// `set` outlives this. @param method  Chooses the recipe where the configuration leaves it to it.
  ViewMaker(const ImageSet& set, const DataConfig& config, Method method);

  [[nodiscard]] const ImageSet& set() const noexcept { return set_; }
  /// Not kAuto.
  [[nodiscard]] ViewRecipe recipe() const noexcept { return recipe_; }

  /// Makes views first.view, first.view + 1, … (of 0 and 1) of one image, which is decoded once. Pure: what comes out
  /// depends on the names, the image and the configuration alone.
  /// @param views  Each is overwritten with [channels, height, width] float32 in [0, 1].
  /// @throws IoError, FormatError where the image is a file that can't be read or decoded.
  void make(const ViewName& first, std::span<const std::span<float>> views) const;

  /// The image itself; of a file its middle (centre_crop).
  void plain(std::uint32_t sample, std::span<float> out) const;

 private:
  void crop_views(const ViewName& first, std::span<const std::span<float>> views) const;
  void digit_views(const ViewName& first, std::span<const std::span<float>> views) const;
  [[nodiscard]] Planes planes(std::span<float> out) const noexcept;
  [[nodiscard]] std::uint32_t shrink_for(double width, double height) const noexcept;

  const ImageSet& set_;
  AugmentConfig augment_;
  ViewRecipe recipe_;
  std::array<CropAugmentation, 2> crops_;
};

}  // namespace spillway::app

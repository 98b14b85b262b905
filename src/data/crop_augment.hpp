#pragma once

#include <array>
#include <cstdint>

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/counter_rng.hpp>
#include <spillway/app/data/image_ops.hpp>

namespace spillway::app {

/// Random views of colour and grey images, in this order: crop, flip, colour jitter, grayscale, blur, solarize. Terms
/// and distributions are those of torchvision's RandomResizedCrop, RandomHorizontalFlip, ColorJitter, RandomGrayscale,
/// GaussianBlur and RandomSolarize.
struct CropAugmentation {
  double scale_min = 0.08;  ///< Share of the image's area that is cropped,
  double scale_max = 1.0;   ///< with sides of 3:4 to 4:3.
  double flip = 0.5;        ///< Probability, as in the next.
  double jitter = 0.8;
  double brightness = 0.8;  ///< Factor of 1 ± that, not below 0; as in the next two.
  double contrast = 0.8;
  double saturation = 0.8;
  double hue = 0.2;                  ///< Share of the circle of colours, ±.
  double grayscale = 0.2;            ///< Probability.
  double blur = 0.5;                 ///< Probability; the kernel is a tenth of the side wide.
  double sigma_min = kBlurSigmaMin;  ///< Pixels.
  double sigma_max = kBlurSigmaMax;
  double solarize = 0.0;  ///< Probability.
  double threshold = 0.5;

  bool operator==(const CropAugmentation&) const = default;
};

/// A recipe with what the configuration changes in it. kSimClr: Chen et al. 2020, app. A, at strength 1; for images of
/// up to 64 pixels a side at strength 1/2 without blur, app. B.9. kMocoV2: Chen et al. 2020b, of which small images
/// have no blur either. kByol: Grill et al. 2020, app. B, whose two views differ in blur and solarize.
/// @param recipe  Not kAuto or kDigits. @param view  0 or 1. @param side  Pixels.
[[nodiscard]] CropAugmentation crop_augmentation(ViewRecipe recipe, const ViewConfig& changes, std::uint32_t view,
                                                 std::uint32_t side) noexcept;

enum class JitterStep : std::uint8_t { kBrightness, kContrast, kSaturation, kHue };

/// What is done to one image.
struct CropParameters {
  CropBox box;
  bool flip = false;
  bool jitter = false;
  std::array<JitterStep, 4> order{};
  float brightness = 1.0F;
  float contrast = 1.0F;
  float saturation = 1.0F;
  float hue = 0.0F;
  bool grayscale = false;
  float blur_sigma = 0.0F;  ///< 0: none.
  bool solarize = false;
};

/// Draws for an image of that size.
[[nodiscard]] CropParameters draw_crop(const CropAugmentation& recipe, std::uint32_t width, std::uint32_t height,
                                       CounterRng& rng) noexcept;

/// The part that is looked at where nothing is random: 7/8 of the shorter side, in the middle, as after torchvision's
/// Resize(256) and CenterCrop(224).
[[nodiscard]] CropBox centre_crop(std::uint32_t width, std::uint32_t height) noexcept;

/// Fills `out`. @param image  Of as many channels as `out`, 1 / `shrink` of the size that the box was drawn for.
void apply_crop(const Image& image, std::uint32_t shrink, const CropParameters& parameters, float threshold,
                const Planes& out);

}  // namespace spillway::app

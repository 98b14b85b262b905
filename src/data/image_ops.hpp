#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <spillway/app/data/image.hpp>

namespace spillway::app {

/// An image that is worked on: float32 in [0, 1], [channels, height, width], in memory of someone else.
struct Planes {
  std::span<float> values;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint32_t channels = 1;  ///< 1 or 3.

  [[nodiscard]] std::size_t plane() const noexcept { return std::size_t{width} * height; }
};

/// A part of an image, in pixels. Fractions arise where an image was shrunk.
struct CropBox {
  double x = 0.0;
  double y = 0.0;
  double width = 0.0;
  double height = 0.0;
};

/// The operations of torchvision.transforms.v2.functional on float images, by their definitions there: equal parameters
/// give equal pixels, up to the rounding of sums. Each works in place and keeps values in [0, 1]. What concerns colour
/// leaves a grey image as it is. Pure; safe from any thread.

/// Fills `out` with a part of `image`, resized by linear interpolation that averages where it shrinks (antialias).
/// Nothing outside of the box is looked at. @param image  Of as many channels as `out`.
void resized_crop(const Image& image, const CropBox& box, const Planes& out);
void flip_horizontally(const Planes& image) noexcept;
void adjust_brightness(const Planes& image, float factor) noexcept;
/// Around the mean of the image's grey.
void adjust_contrast(const Planes& image, float factor) noexcept;
void adjust_saturation(const Planes& image, float factor) noexcept;
/// @param shift  Share of the circle of colours, in [-0.5, 0.5].
void adjust_hue(const Planes& image, float shift) noexcept;
/// Grey in all channels: 0.2989 R + 0.587 G + 0.114 B.
void to_grayscale(const Planes& image) noexcept;
/// With a kernel of `taps` (odd, at most 2 * side - 1) by `taps`; the image is mirrored at its edges.
void gaussian_blur(const Planes& image, std::uint32_t taps, float sigma);
/// Inverts what is not below the threshold.
void solarize(const Planes& image, float threshold) noexcept;

}  // namespace spillway::app

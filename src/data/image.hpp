#pragma once

#include <cstdint>
#include <vector>

namespace spillway::app {

/// A decoded image. Plain data.
struct Image {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint32_t channels = 1;          ///< 1: grey; 3: red, green, blue.
  std::vector<std::uint8_t> pixels{};  ///< [height, width, channels], row-major.

  bool operator==(const Image&) const = default;
};

/// How the stored rows and columns relate to those that are shown, by the numbers of Exif's tag Orientation.
/// Source: CIPA DC-008 (Exif 2.32), sec. 4.6.4.
enum class Orientation : std::uint8_t {
  kUpright = 1,
  kMirrored = 2,
  kUpsideDown = 3,
  kFlipped = 4,
  kTransposed = 5,
  kTurnedRight = 6,  ///< Shown after a quarter turn clockwise.
  kTransversed = 7,
  kTurnedLeft = 8,
};

/// Whether width and height change places when the image is shown.
[[nodiscard]] constexpr bool swaps_sides(Orientation orientation) noexcept {
  return orientation >= Orientation::kTransposed;
}

/// The image as it is shown.
[[nodiscard]] Image oriented(Image image, Orientation orientation);

/// Grey from colour: (19595 R + 38470 G + 7471 B + 32768) / 65536, rounded down, the luma of ITU-R BT.601.
[[nodiscard]] constexpr std::uint8_t luma(std::uint8_t red, std::uint8_t green, std::uint8_t blue) noexcept {
  return static_cast<std::uint8_t>((19595U * red + 38470U * green + 7471U * blue + 32768U) >> 16U);
}

/// The image in 1 or 3 channels; grey is the luma.
[[nodiscard]] Image with_channels(Image image, std::uint32_t channels);

}  // namespace spillway::app

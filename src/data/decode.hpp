#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <spillway/app/data/image.hpp>

namespace spillway::app {

/// Sides and pixels of an image that is decoded at most; a header that promises more is refused before anything is
/// allocated for it.
inline constexpr std::uint32_t kMaxImageSide = 65500;
inline constexpr std::uint64_t kMaxImagePixels = std::uint64_t{1} << 27U;

struct DecodeOptions {
  /// 1, 2, 4 or 8: a JPEG is decoded at this part of its size, sides rounded up, for a fraction of the cost. A PNG is
  /// decoded as it is.
  std::uint32_t shrink = 1;
  std::uint64_t max_pixels = kMaxImagePixels;  ///< As stored, before it shrinks.
};

/// What a file's header says.
struct ImageHeader {
  std::uint32_t width = 0;  ///< As it is shown.
  std::uint32_t height = 0;
  std::uint32_t channels = 1;  ///< As decoded: 1 or 3.
  bool shrinks = false;        ///< Whether DecodeOptions::shrink has an effect.
};

/// Whether the bytes begin as a JPEG or PNG file does.
[[nodiscard]] bool is_image_file(std::span<const std::byte> bytes) noexcept;

/// Reads the header alone. @throws FormatError as decode_image.
[[nodiscard]] ImageHeader read_image_header(std::span<const std::byte> bytes, std::string_view label,
                                            const DecodeOptions& options = {});

/// Decodes a JPEG (baseline or progressive; grey, YCbCr, RGB, CMYK, YCCK) or a PNG (every colour type and depth,
/// interlaced or not), upright as Exif's orientation says. Grey stays one channel, everything else becomes RGB. 16 bits
/// become 8 by dropping the low ones, transparency is dropped, colour profiles and gamma are not applied, CMYK is taken
/// as Adobe's, inverted: pixel by pixel what Pillow's `ImageOps.exif_transpose(image).convert("RGB")` gives, but for
/// 16-bit grey, which Pillow clips. Pure; safe from any thread.
/// @param label  Names the file in messages.
/// @throws FormatError, naming the reason: neither format, damaged, cut short, or larger than the limits. A JPEG that
/// ends after its last row without the end marker is whole.
[[nodiscard]] Image decode_image(std::span<const std::byte> bytes, std::string_view label,
                                 const DecodeOptions& options = {});

}  // namespace spillway::app

#pragma once

#include <cstddef>
#include <span>

#include <spillway/app/data/image.hpp>

namespace spillway::app {

/// What Exif data, from its TIFF header on, says of the orientation. Upright where it says nothing that is understood:
/// the data come from cameras and editors of all kinds, and none of it is worth an image.
[[nodiscard]] Orientation exif_orientation(std::span<const std::byte> tiff) noexcept;

}  // namespace spillway::app

#pragma once

#include <cstdint>
#include <filesystem>

#include <spillway/app/data/image.hpp>

namespace spillway::app {

/// An image with structure of all sizes and some noise, as photographs have: it takes as long to decode and compresses
/// as well as one. A pure function of its arguments.
[[nodiscard]] Image make_photo(std::uint32_t width, std::uint32_t height, std::uint32_t number);

/// Writes `count` of them below `folder`/class as JPEG files of quality 90. @throws IoError.
void write_photos(const std::filesystem::path& folder, std::uint32_t count);

}  // namespace spillway::app

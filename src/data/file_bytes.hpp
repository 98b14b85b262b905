#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

namespace spillway::app {

/// The content of a regular file, as it is. Blocks.
/// @throws IoError if it can't be opened or read, or is no regular file.
[[nodiscard]] std::vector<std::byte> read_file(const std::filesystem::path& path);

/// The content of a regular file, unpacked where it is gzip. Blocks.
/// @throws IoError if it can't be opened or read, or is no regular file; FormatError from gunzip.
[[nodiscard]] std::vector<std::byte> read_image_file(const std::filesystem::path& path);

}  // namespace spillway::app

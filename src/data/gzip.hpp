#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace spillway::app {

/// Whether the bytes begin as a gzip file does.
[[nodiscard]] bool is_gzip(std::span<const std::byte> bytes) noexcept;

/// How much larger the content may be than the file. Images compress to a tenth or so; a file beyond this is damaged,
/// or made to exhaust memory.
inline constexpr std::size_t kGzipMaxRatio = 100;

/// The content of a gzip file, of one member or several. `label` names it in messages.
/// @throws FormatError: cut short (with what was got), damaged, followed by something else, or beyond kGzipMaxRatio.
[[nodiscard]] std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::string_view label);

}  // namespace spillway::app

#pragma once

#include <spillway/app/data/decode.hpp>

namespace spillway::app {

[[nodiscard]] bool is_png(std::span<const std::byte> bytes) noexcept;

/// What decode.hpp says of PNG files.
[[nodiscard]] ImageHeader read_png_header(std::span<const std::byte> bytes, std::string_view label,
                                          const DecodeOptions& options);
[[nodiscard]] Image decode_png(std::span<const std::byte> bytes, std::string_view label, const DecodeOptions& options);

}  // namespace spillway::app

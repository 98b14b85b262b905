#pragma once

#include <spillway/app/data/decode.hpp>

namespace spillway::app {

[[nodiscard]] bool is_jpeg(std::span<const std::byte> bytes) noexcept;

/// What decode.hpp says of JPEG files.
[[nodiscard]] ImageHeader read_jpeg_header(std::span<const std::byte> bytes, std::string_view label,
                                           const DecodeOptions& options);
[[nodiscard]] Image decode_jpeg(std::span<const std::byte> bytes, std::string_view label, const DecodeOptions& options);

/// The bytes of a baseline JPEG of that image, with 4:2:0 chroma where it has colour. @param quality  1 to 100.
[[nodiscard]] std::vector<std::byte> encode_jpeg(const Image& image, int quality);

}  // namespace spillway::app

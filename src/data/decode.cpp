#include <spillway/app/data/decode.hpp>

#include <string>

#include <spillway/app/data/jpeg_file.hpp>
#include <spillway/app/data/png_file.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

[[noreturn]] void refuse_unknown_image(std::string_view label) {
  throw FormatError(std::string(label) + ": neither a JPEG nor a PNG file; convert it, or take it out of the folder");
}

}  // namespace

bool is_image_file(std::span<const std::byte> bytes) noexcept { return is_jpeg(bytes) || is_png(bytes); }

ImageHeader read_image_header(std::span<const std::byte> bytes, std::string_view label, const DecodeOptions& options) {
  if (is_jpeg(bytes)) return read_jpeg_header(bytes, label, options);
  if (is_png(bytes)) return read_png_header(bytes, label, options);
  refuse_unknown_image(label);
}

Image decode_image(std::span<const std::byte> bytes, std::string_view label, const DecodeOptions& options) {
  if (is_jpeg(bytes)) return decode_jpeg(bytes, label, options);
  if (is_png(bytes)) return decode_png(bytes, label, options);
  refuse_unknown_image(label);
}

}  // namespace spillway::app

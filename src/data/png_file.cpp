#include <spillway/app/data/png_file.hpp>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <png.h>

#include <spillway/app/data/exif.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr std::size_t kPngSignature = 8;
constexpr png_alloc_size_t kMaxPngChunk = 8U << 20U;  // Of text, profiles and the like, which are of no use here.
constexpr std::uint64_t kDeflateRatio = 1032;         // The most that deflate can pack.

class PngDecoder {
 public:
  PngDecoder(std::span<const std::byte> bytes, std::string_view label, const DecodeOptions& options)
      : label_(label), left_(bytes), file_bytes_(bytes.size()) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, leave_png, [](png_structp, png_const_charp) {});
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw Error("libpng could not be initialised: out of memory, or headers of another version");
    }
    try {
      guarded([&] {
        png_set_read_fn(png_, this, read_bytes);
        png_set_user_limits(png_, kMaxImageSide, kMaxImageSide);
        png_set_chunk_malloc_max(png_, kMaxPngChunk);
        png_read_info(png_, info_);
      });
      check(options);
    } catch (...) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      throw;
    }
  }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }

  [[nodiscard]] ImageHeader header() {
    const bool swapped = swaps_sides(orientation());
    const std::uint32_t width = png_get_image_width(png_, info_);
    const std::uint32_t height = png_get_image_height(png_, info_);
    return {.width = swapped ? height : width,
            .height = swapped ? width : height,
            .channels = (png_get_color_type(png_, info_) & PNG_COLOR_MASK_COLOR) == 0 ? 1U : 3U,
            .shrinks = false};
  }

  [[nodiscard]] Image decode() {
    guarded([&] {
      png_set_palette_to_rgb(png_);
      if (png_get_color_type(png_, info_) == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png_, info_) < 8) {
        png_set_expand_gray_1_2_4_to_8(png_);
      }
      png_set_strip_16(png_);
      png_set_strip_alpha(png_);
      png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
    });
    Image image{png_get_image_width(png_, info_), png_get_image_height(png_, info_), png_get_channels(png_, info_), {}};
    const std::size_t row_bytes = png_get_rowbytes(png_, info_);
    image.pixels.resize(row_bytes * image.height);
    std::vector<png_bytep> rows(image.height);
    for (std::size_t row = 0; row < rows.size(); ++row) rows[row] = image.pixels.data() + row * row_bytes;
    guarded([&] { png_read_image(png_, rows.data()); });
    return oriented(std::move(image), orientation());
  }

 private:
  /// Runs what calls libpng; nothing in it may need a destructor.
  template <typename Work>
  void guarded(const Work& work) {
    if (setjmp(png_jmpbuf(png_)) != 0) {
      throw FormatError(std::string(label_) + ": damaged PNG: " + message_.data());
    }
    work();
  }

  [[noreturn]] static void leave_png(png_structp png, png_const_charp text) {
    auto& self = *static_cast<PngDecoder*>(png_get_error_ptr(png));
    std::snprintf(self.message_.data(), self.message_.size(), "%s", text);
    png_longjmp(png, 1);
  }

  static void read_bytes(png_structp png, png_bytep to, png_size_t count) {
    auto& self = *static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (count > self.left_.size()) png_error(png, "it ends in the middle");
    std::memcpy(to, self.left_.data(), count);
    self.left_ = self.left_.subspan(count);
  }

  void check(const DecodeOptions& options) {
    const std::uint64_t width = png_get_image_width(png_, info_);
    const std::uint64_t height = png_get_image_height(png_, info_);
    if (width * height > options.max_pixels) {
      throw FormatError(std::string(label_) + ": its header promises " + std::to_string(width) + " x " +
                        std::to_string(height) + " pixels; at most " + std::to_string(options.max_pixels) +
                        " in all and " + std::to_string(kMaxImageSide) + " a side are decoded");
    }
    if (png_get_rowbytes(png_, info_) * height / kDeflateRatio > file_bytes_) {
      throw FormatError(std::string(label_) + ": its header promises " + std::to_string(width) + " x " +
                        std::to_string(height) + " pixels, more than " + std::to_string(file_bytes_) +
                        " bytes can hold; it is cut short, or made to exhaust memory");
    }
  }

  [[nodiscard]] Orientation orientation() {
    png_bytep data = nullptr;
    png_uint_32 size = 0;
    if (png_get_eXIf_1(png_, info_, &size, &data) == 0) return Orientation::kUpright;
    return exif_orientation({reinterpret_cast<const std::byte*>(data), size});
  }

  std::string_view label_;
  std::span<const std::byte> left_;
  std::size_t file_bytes_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::array<char, 128> message_{};
};

}  // namespace

bool is_png(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= kPngSignature &&
         png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, kPngSignature) == 0;
}

ImageHeader read_png_header(std::span<const std::byte> bytes, std::string_view label, const DecodeOptions& options) {
  return PngDecoder(bytes, label, options).header();
}

Image decode_png(std::span<const std::byte> bytes, std::string_view label, const DecodeOptions& options) {
  return PngDecoder(bytes, label, options).decode();
}

}  // namespace spillway::app

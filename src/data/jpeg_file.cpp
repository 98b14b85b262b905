#include <spillway/app/data/jpeg_file.hpp>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include <jpeglib.h>

#include <jerror.h>

#include <spillway/app/data/exif.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

// A progressive file may repeat its scans without end; encoders make about ten.
constexpr int kMaxScans = 200;

/// libjpeg's errors leave its C code by longjmp, and become exceptions where nothing of C is on the stack.
struct JpegErrors {
  jpeg_error_mgr base{};
  std::jmp_buf jump{};
  std::array<char, JMSG_LENGTH_MAX> message{};
};

[[noreturn]] void leave_jpeg(j_common_ptr info) {
  auto& errors = *reinterpret_cast<JpegErrors*>(info->err);
  (*info->err->format_message)(info, errors.message.data());
  std::longjmp(errors.jump, 1);
}

/// Warnings after which pixels are made up end the decoding; others (bytes between markers, odd Adobe data) don't.
void note_jpeg(j_common_ptr info, int level) {
  switch (info->err->msg_code) {
    case JWRN_JPEG_EOF:  // No harm after the only scan; before its end JWRN_HIT_MARKER follows.
      if (info->is_decompressor != 0 && jpeg_has_multiple_scans(reinterpret_cast<j_decompress_ptr>(info)) != 0) {
        leave_jpeg(info);
      }
      break;
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_NOT_SEQUENTIAL:
      if (level < 0) leave_jpeg(info);
      break;
    default:
      break;
  }
}

void count_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMaxScans) {
    ERREXIT(info, JERR_BAD_PROGRESSION);
  }
}

jpeg_error_mgr* prepare(JpegErrors& errors) {
  jpeg_error_mgr* const base = jpeg_std_error(&errors.base);
  base->error_exit = leave_jpeg;
  base->emit_message = note_jpeg;
  return base;
}

class JpegDecoder {
 public:
  JpegDecoder(std::span<const std::byte> bytes, std::string_view label, const DecodeOptions& options) : label_(label) {
    info_.err = prepare(errors_);
    progress_.progress_monitor = count_scans;
    // Until it is created there is nothing to destroy, and creation fails only for want of memory.
    guarded([&] { jpeg_create_decompress(&info_); });
    try {
      guarded([&] {
        info_.progress = &progress_;
        jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
        jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);
        jpeg_read_header(&info_, TRUE);
      });
      check(options);
    } catch (...) {
      jpeg_destroy_decompress(&info_);
      throw;
    }
  }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }

  [[nodiscard]] ImageHeader header() const {
    const bool swapped = swaps_sides(orientation());
    return {.width = swapped ? info_.image_height : info_.image_width,
            .height = swapped ? info_.image_width : info_.image_height,
            .channels = info_.num_components == 1 ? 1U : 3U,
            .shrinks = true};
  }

  [[nodiscard]] Image decode(std::uint32_t shrink) {
    guarded([&] {
      info_.out_color_space = info_.num_components == 1   ? JCS_GRAYSCALE
                              : info_.num_components == 3 ? JCS_RGB
                                                          : JCS_CMYK;
      info_.scale_num = 1;
      info_.scale_denom = shrink;
      jpeg_start_decompress(&info_);
    });
    const auto components = static_cast<std::uint32_t>(info_.output_components);
    Image image{info_.output_width, info_.output_height, components, {}};
    const std::size_t row_bytes = std::size_t{image.width} * components;
    image.pixels.resize(row_bytes * image.height);
    std::uint8_t* const pixels = image.pixels.data();
    guarded([&] {
      while (info_.output_scanline < info_.output_height) {
        JSAMPROW row = pixels + row_bytes * info_.output_scanline;
        jpeg_read_scanlines(&info_, &row, 1);
      }
    });
    return oriented(components == 4 ? from_cmyk(std::move(image)) : std::move(image), orientation());
  }

 private:
  /// Runs what calls libjpeg; nothing in it may need a destructor.
  template <typename Work>
  void guarded(const Work& work) {
    if (setjmp(errors_.jump) != 0) {
      throw FormatError(std::string(label_) + ": damaged JPEG: " + errors_.message.data());
    }
    work();
  }

  void check(const DecodeOptions& options) const {
    const std::uint64_t pixels = std::uint64_t{info_.image_width} * info_.image_height;
    if (std::max(info_.image_width, info_.image_height) > kMaxImageSide || pixels > options.max_pixels) {
      throw FormatError(std::string(label_) + ": its header promises " + std::to_string(info_.image_width) + " x " +
                        std::to_string(info_.image_height) + " pixels; at most " + std::to_string(options.max_pixels) +
                        " in all and " + std::to_string(kMaxImageSide) + " a side are decoded");
    }
    if (info_.num_components != 1 && info_.num_components != 3 && info_.num_components != 4) {
      throw FormatError(std::string(label_) + ": a JPEG of " + std::to_string(info_.num_components) +
                        " components; 1, 3 and 4 are decoded");
    }
  }

  [[nodiscard]] Orientation orientation() const noexcept {
    constexpr std::string_view kExif("Exif\0\0", 6);
    for (jpeg_saved_marker_ptr marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      const std::span data(reinterpret_cast<const std::byte*>(marker->data), marker->data_length);
      const std::string_view text(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (text.starts_with(kExif)) return exif_orientation(data.subspan(kExif.size()));
    }
    return Orientation::kUpright;
  }

  /// From Adobe's inverted inks: the part of light that each lets through.
  static Image from_cmyk(Image inks) {
    Image image{inks.width, inks.height, 3, std::vector<std::uint8_t>(inks.pixels.size() / 4 * 3)};
    for (std::size_t from = 0, to = 0; from < inks.pixels.size(); from += 4) {
      const int black = inks.pixels[from + 3];
      for (std::size_t channel = 0; channel < 3; ++channel) {
        const int product = (255 - inks.pixels[from + channel]) * black + 128;
        image.pixels[to++] = static_cast<std::uint8_t>(std::clamp(black - (((product >> 8) + product) >> 8), 0, 255));
      }
    }
    return image;
  }

  std::string_view label_;
  JpegErrors errors_;
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
};

}  // namespace

bool is_jpeg(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= 3 && bytes[0] == std::byte{0xFF} && bytes[1] == std::byte{0xD8} && bytes[2] == std::byte{0xFF};
}

ImageHeader read_jpeg_header(std::span<const std::byte> bytes, std::string_view label, const DecodeOptions& options) {
  return JpegDecoder(bytes, label, options).header();
}

Image decode_jpeg(std::span<const std::byte> bytes, std::string_view label, const DecodeOptions& options) {
  return JpegDecoder(bytes, label, options).decode(options.shrink);
}

std::vector<std::byte> encode_jpeg(const Image& image, int quality) {
  JpegErrors errors;
  jpeg_compress_struct info{};
  info.err = prepare(errors);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type.
  if (setjmp(errors.jump) != 0) {
    jpeg_destroy_compress(&info);
    std::free(buffer);
    throw Error(std::string("could not encode a JPEG: ") + errors.message.data());
  }
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, &buffer, &size);
  info.image_width = image.width;
  info.image_height = image.height;
  info.input_components = static_cast<int>(image.channels);
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    const std::size_t offset = std::size_t{info.next_scanline} * image.width * image.channels;
    auto* row = const_cast<JSAMPROW>(image.pixels.data() + offset);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* const begin = reinterpret_cast<const std::byte*>(buffer);
  std::vector<std::byte> bytes(begin, begin + size);
  std::free(buffer);
  return bytes;
}

}  // namespace spillway::app

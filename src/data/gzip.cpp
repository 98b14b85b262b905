#include <spillway/app/data/gzip.hpp>

#include <algorithm>
#include <limits>
#include <string>

#include <zlib.h>

#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr int kGzipOnly = 16 + MAX_WBITS;
constexpr std::size_t kStepBytes = std::size_t{256} * 1024;

/// Owner of zlib's state.
class Inflater {
 public:
  Inflater() {
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) {
      throw Error("zlib could not be initialised: out of memory");
    }
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  z_stream* operator->() noexcept { return &stream_; }
  int step() noexcept { return inflate(&stream_, Z_NO_FLUSH); }
  void next_member() noexcept { inflateReset(&stream_); }

 private:
  z_stream stream_{};
};

[[noreturn]] void fail(std::string_view label, const std::string& what) {
  throw FormatError(std::string(label) + ": " + what);
}

}  // namespace

bool is_gzip(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
}

std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::string_view label) {
  const std::size_t limit = bytes.size() * kGzipMaxRatio;
  std::vector<std::byte> content;
  std::size_t filled = 0;
  std::size_t fed = 0;
  Inflater inflater;
  for (int status = Z_OK; status != Z_STREAM_END || fed - inflater->avail_in < bytes.size();) {
    if (status == Z_STREAM_END) {
      inflater.next_member();
    }
    if (inflater->avail_in == 0 && fed < bytes.size()) {
      const std::size_t piece = std::min<std::size_t>(bytes.size() - fed, std::numeric_limits<uInt>::max());
      // zlib's type is not const, and does not write there.
      inflater->next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data() + fed));
      inflater->avail_in = static_cast<uInt>(piece);
      fed += piece;
    }
    if (filled == content.size()) {
      if (filled >= limit) {
        fail(label, "unpacks to more than " + std::to_string(kGzipMaxRatio) +
                        " times its size; if it is meant to, unpack it first (gunzip)");
      }
      content.resize(std::min(limit, filled + std::max(kStepBytes, filled)));
    }
    const std::size_t room = std::min<std::size_t>(content.size() - filled, std::numeric_limits<uInt>::max());
    inflater->next_out = reinterpret_cast<Bytef*>(content.data() + filled);
    inflater->avail_out = static_cast<uInt>(room);
    status = inflater.step();
    filled += room - inflater->avail_out;
    if (status == Z_BUF_ERROR && inflater->avail_in == 0) {
      fail(label, "cut short: the gzip data ends after " + std::to_string(bytes.size()) + " bytes (" +
                      std::to_string(filled) + " unpacked) in the middle; copy or download it again");
    }
    if (status != Z_OK && status != Z_STREAM_END) {
      fail(label, "damaged gzip data at about byte " + std::to_string(fed - inflater->avail_in) + " (" +
                      (inflater->msg != nullptr ? inflater->msg : "no details") + "); copy or download it again");
    }
  }
  content.resize(filled);
  return content;
}

}  // namespace spillway::app

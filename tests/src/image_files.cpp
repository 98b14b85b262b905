#include "image_files.hpp"

#include <fstream>
#include <stdexcept>

#include <zlib.h>

namespace spillway::test {

std::string idx_bytes(std::initializer_list<std::uint32_t> sizes, std::string_view content) {
  std::string bytes = {0, 0, 8, static_cast<char>(sizes.size())};
  for (const std::uint32_t size : sizes) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
      bytes += static_cast<char>(size >> shift & 0xFFU);
    }
  }
  return bytes + std::string(content);
}

std::string gzipped(std::string_view content) {
  constexpr int kGzip = 16 + MAX_WBITS;
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("zlib could not be initialised");
  }
  std::string packed(deflateBound(&stream, content.size()), '\0');
  std::string input(content);
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int status = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) {
    throw std::runtime_error("zlib did not finish");
  }
  return packed;
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary);
  file << content << std::flush;
  if (!file) {
    throw std::runtime_error("could not write " + path.string());
  }
}

}  // namespace spillway::test

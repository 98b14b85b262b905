#include <spillway/app/data/file_bytes.hpp>

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include <spillway/app/data/gzip.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

[[noreturn]] void fail(const std::string& operation, const std::filesystem::path& path, std::uint64_t bytes,
                       int error_number) {
  throw IoError({.operation = operation,
                 .path = path.string(),
                 .bytes = bytes,
                 .error_number = error_number,
                 .advice = "data.source (--data) wants mnist5k, digits, synthetic, or a CSV or IDX file or a folder of "
                           "images that can be read"});
}

}  // namespace

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    fail("open", path, 0, error ? error.value() : ENOENT);
  }
  if (!std::filesystem::is_regular_file(status)) {
    fail("open", path, 0, std::filesystem::is_directory(status) ? EISDIR : EINVAL);
  }
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {
    fail("open", path, 0, error ? error.value() : errno);
  }
  std::vector<std::byte> bytes(size);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size))) {
    fail("read", path, size, errno);
  }
  return bytes;
}

std::vector<std::byte> read_image_file(const std::filesystem::path& path) {
  std::vector<std::byte> bytes = read_file(path);
  return is_gzip(bytes) ? gunzip(bytes, path.string()) : bytes;
}

}  // namespace spillway::app

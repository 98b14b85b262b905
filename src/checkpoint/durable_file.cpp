#include <spillway/app/checkpoint/durable_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include <spillway/offload/checksum.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

using offload::UniqueFd;

constexpr std::size_t kPieceBytes = 1U << 20;
constexpr std::uint64_t kAheadBytes = 8U << 20;  // That the disk works on while others are summed.

constexpr std::string_view kWriteAdvice =
    "checkpoints are in the run's folder (--out), which has to be writable and have space";
[[noreturn]] void errno_failure(const std::string& operation, const std::filesystem::path& path, std::uint64_t offset,
                                std::uint64_t bytes, std::string_view advice = kWriteAdvice) {
  throw IoError({.operation = operation,
                 .path = path.string(),
                 .offset = offset,
                 .bytes = bytes,
                 .error_number = errno,
                 .advice = std::string(advice)});
}

/// As read(2) and write(2), but goes on after a signal. @returns what they return.
template <typename Call>
ssize_t uninterrupted(Call&& call) {
  ssize_t result = 0;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

void synchronise(int file, const std::filesystem::path& path) {
  if (::fsync(file) != 0) errno_failure("fsync", path, 0, 0);
}

}  // namespace

DurableFile::DurableFile(std::filesystem::path path)
    : path_(std::move(path)),
      file_(UniqueFd::adopt(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600))) {
  if (!file_) errno_failure("create", path_, 0, 0);
  piece_.reserve(kPieceBytes);
}

void DurableFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (piece_.empty() && bytes.size() >= kPieceBytes) {  // Whole pieces go from where they are.
      put(bytes.first(kPieceBytes));
      bytes = bytes.subspan(kPieceBytes);
      continue;
    }
    const std::size_t count = std::min(bytes.size(), kPieceBytes - piece_.size());
    piece_.insert(piece_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    bytes = bytes.subspan(count);
    if (piece_.size() == kPieceBytes) drain();
  }
}

void DurableFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void DurableFile::drain() {
  put(piece_);
  piece_.clear();
}

void DurableFile::put(std::span<const std::byte> piece) {
  std::span<const std::byte> left = piece;
  while (!left.empty()) {
    const ssize_t written = uninterrupted([&] { return ::write(file_.get(), left.data(), left.size()); });
    if (written <= 0) errno_failure("write", path_, digest_.bytes + piece.size() - left.size(), left.size());
    left = left.subspan(static_cast<std::size_t>(written));
  }
  digest_.xxh3 = offload::xxh3_64(piece, digest_.xxh3);
  digest_.bytes += piece.size();
  if (digest_.bytes - started_ >= kAheadBytes) {  // The disk begins while more is summed; what fails, finish() tells.
    static_cast<void>(::sync_file_range(file_.get(), static_cast<off_t>(started_),
                                        static_cast<off_t>(digest_.bytes - started_), SYNC_FILE_RANGE_WRITE));
    started_ = digest_.bytes;
  }
}

void DurableFile::end_part(std::string name) {
  if (!piece_.empty()) drain();
  digest_.parts.push_back({std::move(name), digest_.bytes, digest_.xxh3});
}

FileDigest DurableFile::finish() {
  if (!piece_.empty()) drain();
  synchronise(file_.get(), path_);
  file_ = {};
  return digest_;
}

InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)),
      file_(UniqueFd::adopt(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK))) {
  struct stat status {};
  if (!file_ || ::fstat(file_.get(), &status) != 0) errno_failure("open", path_, 0, 0, kTakeAnother);
  if (!S_ISREG(status.st_mode)) {
    errno = EINVAL;
    errno_failure("open", path_, 0, 0, kTakeAnother);
  }
  bytes_ = static_cast<std::uint64_t>(status.st_size);
}

void InputFile::read(std::span<std::byte> into, std::uint64_t offset) const {
  while (!into.empty()) {
    const ssize_t got =
        uninterrupted([&] { return ::pread(file_.get(), into.data(), into.size(), static_cast<off_t>(offset)); });
    if (got <= 0) {
      if (got == 0) errno = 0;
      errno_failure("read", path_, offset, into.size(), kTakeAnother);
    }
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

void InputFile::read_ahead(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  static_cast<void>(
      ::posix_fadvise(file_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED));
}

std::optional<std::string> find_damage(const std::filesystem::path& path, const FileDigest& written) {
  const InputFile file(path);
  if (file.bytes() != written.bytes) {
    const auto cut = std::ranges::find_if(written.parts, [&](const FilePart& part) { return part.end > file.bytes(); });
    return "it has " + std::to_string(file.bytes()) + " bytes instead of " + std::to_string(written.bytes) +
           (cut == written.parts.end() ? "" : ", it ends in " + cut->name);
  }
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kPieceBytes, file.bytes()));
  std::uint64_t at = 0;
  std::uint64_t asked = 0;  // Of the system, to be read ahead.
  std::uint64_t xxh3 = 0;
  const auto read_up_to = [&](std::uint64_t end) {
    while (at < end) {
      if (at + kAheadBytes / 2 >= asked) {
        file.read_ahead(asked, kAheadBytes);
        asked += kAheadBytes;
      }
      const std::span piece(buffer.data(), std::min<std::uint64_t>(buffer.size(), end - at));
      file.read(piece, at);
      xxh3 = offload::xxh3_64(piece, xxh3);
      at += piece.size();
    }
  };
  for (const FilePart& part : written.parts) {
    read_up_to(part.end);
    if (xxh3 != part.xxh3) return "the bytes of " + part.name + " are not those that were written";
  }
  read_up_to(file.bytes());
  if (xxh3 != written.xxh3) return "its bytes are not those that were written";
  return std::nullopt;
}

void synchronise_folder(const std::filesystem::path& folder) {
  const UniqueFd opened = UniqueFd::adopt(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) errno_failure("open folder", folder, 0, 0);
  synchronise(opened.get(), folder);
}

}  // namespace spillway::app

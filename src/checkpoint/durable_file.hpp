#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include <spillway/offload/unique_fd.hpp>

namespace spillway::app {

/// What to do about a file of a checkpoint that is not what it was.
inline constexpr std::string_view kTakeAnother = "take another checkpoint (--resume auto finds the newest whole one)";

/// What a file holds: its size, and XXH3-64 over pieces of 1 MiB, each hash the seed of the next.
struct FileDigest {
  std::uint64_t bytes = 0;
  std::uint64_t xxh3 = 0;
  bool operator==(const FileDigest&) const = default;
};

/// A new file that is on the disk when finish() returns. Not thread-safe.
class DurableFile {
 public:
  /// Mode 0600. @throws IoError where the path exists or can't be made.
  explicit DurableFile(std::filesystem::path path);
  /// @throws IoError.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Waits until all has reached the disk. Nothing is written afterwards. @throws IoError: the file is of no use then.
  FileDigest finish();

 private:
  void drain();

  std::filesystem::path path_;
  offload::UniqueFd file_;
  std::vector<std::byte> piece_;
  FileDigest digest_;
};

/// A file of a checkpoint, for reading. Thread-safe.
class InputFile {
 public:
  /// @throws IoError, also for what is no regular file or is reached through a link.
  explicit InputFile(std::filesystem::path path);
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// When it was opened.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Fills `into` from byte `offset` on. @throws IoError where the file ends before.
  void read(std::span<std::byte> into, std::uint64_t offset) const;

 private:
  std::filesystem::path path_;
  offload::UniqueFd file_;
  std::uint64_t bytes_ = 0;
};

/// Reads a whole file. @throws as InputFile does.
[[nodiscard]] FileDigest digest_file(const std::filesystem::path& path);

/// Waits until the entries of a folder (new files, renamed ones) have reached the disk. @throws IoError.
void synchronise_folder(const std::filesystem::path& folder);

}  // namespace spillway::app

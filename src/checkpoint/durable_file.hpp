#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <spillway/offload/unique_fd.hpp>

namespace spillway::app {

/// What to do about a file of a checkpoint that is not what it was.
inline constexpr std::string_view kTakeAnother = "take another checkpoint (--resume auto finds the newest whole one)";

/// A part of a file that has a name, such as a tensor of it: from the end of the part before on.
struct FilePart {
  std::string name;
  std::uint64_t end = 0;
  std::uint64_t xxh3 = 0;  ///< Of the file up to its end.
  bool operator==(const FilePart&) const = default;
};

/// What a file holds: its size, and XXH3-64 over pieces of 1 MiB, each hash the seed of the next. A part's end is a
/// piece's end too, so that the hash at each part's end says in which of them a file was changed.
struct FileDigest {
  std::uint64_t bytes = 0;
  std::uint64_t xxh3 = 0;
  std::vector<FilePart> parts = {};
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
  /// What was written since the last call is a part of that name. @throws IoError.
  void end_part(std::string name);
  /// Waits until all has reached the disk. Nothing is written afterwards. @throws IoError: the file is of no use then.
  FileDigest finish();

 private:
  void drain();
  void put(std::span<const std::byte> piece);

  std::filesystem::path path_;
  offload::UniqueFd file_;
  std::vector<std::byte> piece_;
  FileDigest digest_;
  std::uint64_t started_ = 0;  // Bytes that the disk was told to begin with.
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
  /// Has the system begin to read, and does not wait.
  void read_ahead(std::uint64_t offset, std::uint64_t bytes) const noexcept;

 private:
  std::filesystem::path path_;
  offload::UniqueFd file_;
  std::uint64_t bytes_ = 0;
};

/// Reads a whole file. @returns how it differs from what was written, and in which part; nothing where it does not.
/// @param written  Its parts are in order and no longer than it. @throws as InputFile does.
[[nodiscard]] std::optional<std::string> find_damage(const std::filesystem::path& path, const FileDigest& written);

/// Waits until the entries of a folder (new files, renamed ones) have reached the disk. @throws IoError.
void synchronise_folder(const std::filesystem::path& folder);

}  // namespace spillway::app

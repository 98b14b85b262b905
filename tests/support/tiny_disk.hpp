#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "support/temp_dir.hpp"

namespace spillway::test {

enum class TinyDiskKind {
  Ramfs,  ///< In memory and without a limit; refuses O_DIRECT and fallocate.
  Tmpfs,  ///< In memory. Kernels before 6.6 refuse O_DIRECT on it.
  Ext4,   ///< On a loop device over a file.
};

/// A file system of its own with room for a few bytes, for what happens when a disk is full or refuses things. Mounted
/// in the constructor and taken down in the destructor; what is open in it by then keeps it alive until it is closed.
class TinyDisk {
 public:
  /// Why no such file system can be made here, to be given to GTEST_SKIP; none where it can.
  static std::optional<std::string> unavailable(TinyDiskKind kind);

  /// @param bytes the size of the device; ext4 takes a part of it (at least 2 MiB) for itself.
  /// @throws std::system_error where it cannot be made.
  TinyDisk(TinyDiskKind kind, std::uint64_t bytes);
  ~TinyDisk();

  TinyDisk(const TinyDisk&) = delete;
  TinyDisk& operator=(const TinyDisk&) = delete;

  const std::filesystem::path& path() const noexcept { return mount_point_; }

 private:
  void mount_ext4(std::uint64_t bytes);

  TempDir folder_;
  std::filesystem::path mount_point_;
};

}  // namespace spillway::test

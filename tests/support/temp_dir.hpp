#pragma once

#include <filesystem>
#include <string_view>

namespace spillway::test {

/// Owns a new, empty folder of mode 0700 below $TMPDIR (or the system's folder for temporary files); removes it with
/// all that is in it when it dies. Move-only; a moved-from one is empty and removes nothing.
class TempDir {
 public:
  /// @param label appears in the folder's name. @param below where it is made, in the place of $TMPDIR.
  /// @throws std::filesystem::filesystem_error where no folder can be made.
  explicit TempDir(std::string_view label = "spillway",
                   const std::filesystem::path& below = std::filesystem::temp_directory_path());
  ~TempDir();

  TempDir(TempDir&& other) noexcept;
  TempDir& operator=(TempDir&& other) noexcept;
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }

  /// The path of an entry in it, whether there is such an entry or not.
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

 private:
  void remove() noexcept;

  std::filesystem::path path_;
};

}  // namespace spillway::test

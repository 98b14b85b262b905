#pragma once

#include <filesystem>

namespace spillway::app {

/// A new folder in another one, removed in the end with all that is in it.
class ScratchFolder {
 public:
  /// @throws IoError.
  explicit ScratchFolder(const std::filesystem::path& parent);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace spillway::app

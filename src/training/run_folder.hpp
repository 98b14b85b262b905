#pragma once

#include <filesystem>

#include <spillway/offload/unique_fd.hpp>

namespace spillway::app {

/// The folder that a run writes to, for this run alone: two that write metrics and checkpoints to the same place would
/// each remove what the other needs. The claim ends with the process, however it ends.
class RunFolder {
 public:
  /// Makes the folder where it is missing. Where its file system has no locks, it is taken without one.
  /// @throws IoError if it can't be made or opened; Error if another run has it.
  explicit RunFolder(const std::filesystem::path& path);

 private:
  offload::UniqueFd folder_;
};

}  // namespace spillway::app

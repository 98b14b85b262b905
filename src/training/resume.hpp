#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <spillway/app/checkpoint/checkpoint_folder.hpp>

namespace spillway::app {

/// Where a run starts.
struct ResumePoint {
  std::optional<FoundCheckpoint> found;  ///< Verified; nothing: at the first step.
  bool in_place = false;                 ///< Whether it is one of the run's own folder, whose files go on.
  std::vector<std::string> notes;        ///< For the user: checkpoints that were passed over, and why.
};

/// A checkpoint that a user named.
struct NamedCheckpoint {
  FoundCheckpoint found;           ///< Verified.
  std::vector<std::string> notes;  ///< For the user: newer ones that were passed over, and why.
};

/// @param path  A checkpoint's folder; a run's, or the one of its checkpoints, for the newest whole one in it.
/// @throws Error where there is none; IoError.
[[nodiscard]] NamedCheckpoint find_checkpoint(const std::filesystem::path& path);

/// The checkpoint at `path`, or all of a run or of a folder of checkpoints, newest first, verified or not.
[[nodiscard]] std::vector<std::filesystem::path> checkpoints_at(const std::filesystem::path& path);

/// The folder of a run's checkpoints.
[[nodiscard]] std::filesystem::path checkpoint_root(const std::filesystem::path& out);

/// @param resume  @see TrainOptions::resume.
/// @throws Error where a folder was named that holds no whole checkpoint; IoError.
[[nodiscard]] ResumePoint find_resume_point(const std::optional<std::string>& resume, const std::filesystem::path& out);

/// Gives the checkpoints of an earlier run in `out` another name, "checkpoints.1" and so on, so that a run that starts
/// anew neither mixes with them nor loses them. @returns that name; nothing where there were none. @throws IoError.
[[nodiscard]] std::optional<std::filesystem::path> put_checkpoints_aside(const std::filesystem::path& out);

}  // namespace spillway::app

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <spillway/app/checkpoint/manifest.hpp>

namespace spillway::app {

/// One checkpoint that is being written: a folder beside the place where it will be, that takes this place at once when
/// all is on the disk. Not thread-safe.
class CheckpointWriter {
 public:
  /// @param root  The folder of all checkpoints of a run, made where it is missing (mode 0700). @throws IoError.
  CheckpointWriter(std::filesystem::path root, std::uint64_t step);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  /// Removes what was not committed.
  ~CheckpointWriter();

  /// Where the files are written.
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  /// Writes the manifest, gives the folder its name, then names it in `root`/latest. After a crash at any instant the
  /// newest checkpoint is this one or the one before. @throws IoError.
  void commit(const Manifest& manifest);

 private:
  std::filesystem::path root_;
  std::uint64_t step_;
  std::filesystem::path folder_;
  bool committed_ = false;
};

/// Where a CheckpointWriter of that step writes: for other ranks, which write beside it.
[[nodiscard]] std::filesystem::path partial_folder(const std::filesystem::path& root, std::uint64_t step);

/// The checkpoints in `root`, newest first; none where there is no such folder.
[[nodiscard]] std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& root);

/// The manifest alone, of a checkpoint that somebody has verified. @throws Error, IoError.
[[nodiscard]] Manifest read_manifest(const std::filesystem::path& checkpoint);

/// What is damaged: a line for each file that is missing or not as it was written, with the part of it (a tensor) in
/// which its first wrong byte lies. Nothing where all of the checkpoint is as it was written.
[[nodiscard]] std::vector<std::string> find_damages(const std::filesystem::path& checkpoint, const Manifest& manifest);

/// Reads the manifest and every file that it names. @throws Error naming the first thing that is not as it was
/// written, IoError.
[[nodiscard]] Manifest verify_checkpoint(const std::filesystem::path& checkpoint);

struct FoundCheckpoint {
  std::filesystem::path path;
  Manifest manifest;
};

/// The newest one that verifies. @param skipped  is told why, for each that does not.
[[nodiscard]] std::optional<FoundCheckpoint> newest_checkpoint(const std::filesystem::path& root,
                                                               const std::function<void(const std::string&)>& skipped);

/// Removes all but the newest `keep_last` up to `step` and those whose step is a multiple of `keep_every` (0: none is
/// kept for that), and what runs that were killed left half-written. Later ones, which the run passed over or was told
/// not to take, stay and don't count. What can't be removed stays, to be tried again the next time. Nobody else writes
/// in `root` meanwhile. @param step  of the checkpoint that was just written.
void remove_old_checkpoints(const std::filesystem::path& root, std::uint64_t step, std::uint64_t keep_last,
                            std::uint64_t keep_every);

}  // namespace spillway::app

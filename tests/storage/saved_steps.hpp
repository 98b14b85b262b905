#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace spillway::test {

/// Writes the checkpoint of `step`, whose content follows from the step, into `root`, and removes all but two.
/// @throws as CheckpointWriter and DurableFile.
void save_step(const std::filesystem::path& root, std::uint64_t step);

/// The same without a folder aside, file after file in the place where it will be: what a kill tears.
void save_step_in_place(const std::filesystem::path& root, std::uint64_t step);

/// What a run that starts in `root` takes: the newest whole checkpoint.
struct ResumedStep {
  std::uint64_t step = 0;    ///< 0 where there is none.
  std::string wrong = {};    ///< What is not as save_step wrote it, though it verifies; empty: nothing.
  std::string skipped = {};  ///< Checkpoints that were passed over, and why; empty: none.
};
[[nodiscard]] ResumedStep resume_step(const std::filesystem::path& root);

}  // namespace spillway::test

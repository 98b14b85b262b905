#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <spillway/app/checkpoint/checkpoint_folder.hpp>
#include <spillway/app/config/json.hpp>
#include <spillway/app/report/summary.hpp>
#include <spillway/app/training/run_parts.hpp>
#include <spillway/app/training/run_ranks.hpp>

namespace spillway::app {

/// What a run has to remember beside its parts, so that its summary is that of all its steps.
struct RunProgress {
  Summary summary;                       ///< Of the steps that were done, without what only its end knows.
  double steps_s = 0.0;                  ///< Time in steps.
  double stall_s = 0.0;                  ///< Of it, waiting.
  std::vector<std::uint64_t> skipped{};  ///< Steps, from 0, that left everything as it was.
};

/// Writes the run as it is after `step` optimizer steps into a new checkpoint in `root`: every tensor of the method,
/// the optimizer's state and masters a block at a time, the bank's rows a segment at a time, counters, the loss scale's
/// state, and that of LibTorch's default generator. Memory does not grow with state or bank. On several ranks each
/// writes a file of what is its own, and rank 0, in whose file is what they have in common, commits when all are on the
/// disk.
/// @returns why there is no new checkpoint, the same on all ranks; nothing where there is one. What was there before is
/// untouched. @throws what reading state or bank throws, and as distributed::Collective.
[[nodiscard]] std::optional<std::string> save_run(const std::filesystem::path& root, std::uint64_t step,
                                                  const Json& config, const RunProgress& progress, RunParts& parts,
                                                  RunRanks& ranks);

/// @throws ConfigError where the checkpoint is of another configuration, naming each difference that would change a
/// result. With another number of ranks their shares of a batch may differ.
void check_resumable(const FoundCheckpoint& found, const Json& config, std::uint64_t world_size);

/// Puts a run that has not begun where the checkpoint was. `found` was verified and is resumable. The optimizer's state
/// is dealt to the ranks that there are, from the files of those that there were; of files of other ranks only what
/// this one takes is read. What does not fit is found before anything changes, as far as the files' headers tell.
/// @throws Error for a tensor that is missing or of another size; IoError.
[[nodiscard]] RunProgress restore_run(const FoundCheckpoint& found, RunParts& parts, RunRanks& ranks);

/// The weights and running statistics of the checkpoint's encoder and head into one of the same configuration.
/// @throws as restore_run.
void restore_network(const FoundCheckpoint& found, ProjectedEncoder& network);

/// "seed: 1 there, 2 here" for each key in which two resolved configurations differ, apart from those that change
/// where and how fast a run is but no result.
[[nodiscard]] std::vector<std::string> differences_of_results(const Json& there, const Json& here);

}  // namespace spillway::app

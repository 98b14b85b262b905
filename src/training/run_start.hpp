#pragma once

#include <optional>
#include <string>

#include <spillway/app/config/config.hpp>
#include <spillway/app/training/resume.hpp>
#include <spillway/app/training/run_folder.hpp>
#include <spillway/app/training/run_ranks.hpp>

namespace spillway::app {

/// What a run has before it makes anything.
struct RunStart {
  ResumePoint point;                ///< The same on all ranks, with notes on the leading one.
  std::optional<RunFolder> folder;  ///< The leading rank's, as long as this lives.
};

/// Takes config.out for the run, finds where it starts, and writes config.json: the leading rank's matter, which the
/// others wait for. @param resume  @see TrainOptions::resume.
/// @throws as RunFolder, find_resume_point and check_resumable; Error on the ranks that wait.
[[nodiscard]] RunStart start_run(const Config& config, const std::optional<std::string>& resume, RunRanks& ranks);

}  // namespace spillway::app

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <spillway/app/probe/machine_probe.hpp>
#include <spillway/app/training/run_parts.hpp>

namespace spillway::app {

/// What one kind of work takes in a step. The kinds overlap, so that the longest decides.
struct LinkTime {
  std::string name;
  std::uint64_t bytes = 0;  ///< 0: not a matter of bytes.
  double seconds = 0.0;
};

struct StepPrediction {
  std::vector<LinkTime> links;  ///< Longest first.
  [[nodiscard]] const LinkTime& limiting() const { return links.front(); }
};

/// Seconds of a late step from the bytes that it moves and the rates that were measured: disk (reads and writes one
/// after the other, over all folders), host memory (the optimizer's state once in and out, the bank once for each
/// micro-batch), and `compute_s`.
[[nodiscard]] StepPrediction predict_step(const MachineProbe& probe, const std::vector<PlacementRow>& placement,
                                          const optimizer::StepBytes& step, std::uint64_t micro_batches,
                                          double compute_s);

/// Runs a few steps, where there is a bank on one that it fills with random keys first, and takes the shortest, less
/// what it waited for the disk. The parts are those of no training any more then.
[[nodiscard]] double measure_compute_s(RunParts& parts, const RunPlan& plan);

}  // namespace spillway::app

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/dataset.hpp>
#include <spillway/app/report/metrics.hpp>
#include <spillway/app/training/run_parts.hpp>
#include <spillway/app/training/run_plan.hpp>

namespace spillway::app {

/// "moco on digits: 1438 images of 8 x 8 to train on, …": what a run is about to do.
[[nodiscard]] std::string describe_task(const Config& config, const Dataset& dataset, const RunPlan& plan,
                                        std::uint64_t world_size);

/// What the user should know of the method with this configuration, a line each.
[[nodiscard]] std::vector<std::string> describe_method(const Config& config);

/// What `steps` steps will move. @param steps  At least 1.
[[nodiscard]] std::string describe_traffic(const RunTraffic& predicted, std::uint64_t steps);

/// A step that was skipped. @param overflow  The first tensor that was not finite.
[[nodiscard]] std::string describe_skip(const StepMetrics& metrics, const std::string& overflow);

}  // namespace spillway::app

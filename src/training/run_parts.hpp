#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/dataset.hpp>
#include <spillway/app/methods/training_method.hpp>
#include <spillway/app/training/run_plan.hpp>
#include <spillway/app/training/run_ranks.hpp>
#include <spillway/app/training/run_tiers.hpp>
#include <spillway/app/training/traffic_forecast.hpp>
#include <spillway/app/training/training_step.hpp>
#include <spillway/offload/tiers.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>

namespace spillway::app {

/// What a run is made of, placed and ready for its first step: `train` runs it, `plan` looks at it. One caller at a
/// time.
class RunParts {
 public:
  /// Draws the network's weights from LibTorch's default generator. Allocates all memory and swap space. `config`,
  /// `images` and `ranks` outlive this. `trace` (may be null) gets the transfers, the stalls and the parts of a step.
  /// @throws ConfigError, BudgetExceeded, OutOfSpace, IoError: what the plan needs that there is not.
  RunParts(const Config& config, const ImageSet& images, RunRanks& ranks, offload::LogSink log,
           std::shared_ptr<offload::Trace> trace = nullptr);

  [[nodiscard]] offload::Tiers& tiers() noexcept { return *tiers_; }
  [[nodiscard]] TrainingMethod& method() noexcept { return *method_; }
  [[nodiscard]] optimizer::Optimizer& optimizer() noexcept { return *optimizer_; }
  [[nodiscard]] TrainingStep& step() noexcept { return step_; }
  /// From the first step on.
  [[nodiscard]] const TrafficForecast& forecast() const noexcept { return forecast_; }

  [[nodiscard]] std::vector<PlacementRow> placement();
  [[nodiscard]] OutsideBytes outside() const noexcept { return outside_; }

 private:
  std::shared_ptr<offload::Tiers> tiers_;
  std::unique_ptr<TrainingMethod> method_;
  std::unique_ptr<optimizer::Optimizer> optimizer_;
  TrainingStep step_;
  TrafficForecast forecast_;
  OutsideBytes outside_;
};

/// What the steps of a run move, by the forecast of its parts.
struct RunTraffic {
  optimizer::StepBytes all;
  optimizer::StepBytes last;
};
[[nodiscard]] RunTraffic predict_traffic(TrafficForecast forecast, const RunPlan& plan);

}  // namespace spillway::app

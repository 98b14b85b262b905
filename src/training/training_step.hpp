#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/image_set.hpp>
#include <spillway/app/methods/training_method.hpp>
#include <spillway/app/training/run_plan.hpp>
#include <spillway/app/training/step_breakdown.hpp>
#include <spillway/distributed/collective.hpp>
#include <spillway/offload/trace.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>

namespace spillway::app {

struct StepResult {
  double loss = 0.0;       ///< Mean over the samples of the window.
  double grad_norm = 0.0;  ///< Before clipping.
  std::uint64_t samples = 0;
  PhaseTimes phases{};
};

/// One optimizer step: a window of micro-batches forward and backward, the mean of the gradients over the ranks,
/// clipping, the update, and what the method does after it. Bank and optimizer start to read what they need before the
/// encoders run, so that encoding hides the disk. Transfers of a step are submitted within it. One caller at a time.
class TrainingStep {
 public:
  /// All arguments outlive this. `trace` (may be null) gets the parts of a step.
  TrainingStep(const Config& config, const ImageSet& images, TrainingMethod& method, optimizer::Optimizer& optimizer,
               distributed::Collective& ranks, offload::Trace* trace = nullptr);

  /// @param order  Of the epoch that `place` is in.
  /// @throws Error where the loss is not finite (the weights are those before the step), and what bank, optimizer and
  /// collective throw.
  StepResult run(const EpochOrder& order, const StepPlace& place);

 private:
  /// The samples of one step.
  struct Window {
    const EpochOrder& order;
    StepPlace place;
    std::vector<std::uint64_t> micro_batches;  ///< Those with rows; a last window may have fewer samples.
    std::uint64_t samples = 0;
  };

  [[nodiscard]] Window window(const EpochOrder& order, const StepPlace& place) const;
  [[nodiscard]] ViewPair views(const Window& window, std::uint64_t micro) const;
  double accumulate(const Window& window, std::uint64_t micro);
  double accumulate_cached(const Window& window, WindowLoss& method);
  void require_finite(double loss, const StepPlace& place) const;
  [[nodiscard]] double clip();

  const Config& config_;
  const ImageSet& images_;
  TrainingMethod& method_;
  optimizer::Optimizer& optimizer_;
  distributed::Collective& ranks_;
  offload::Trace* const trace_;
  std::vector<at::Tensor> parameters_;
  PhaseTimes phases_{};  // Of the step that runs.
};

}  // namespace spillway::app

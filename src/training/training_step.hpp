#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/image_set.hpp>
#include <spillway/app/data/view_data_reader.hpp>
#include <spillway/app/methods/training_method.hpp>
#include <spillway/app/training/mixed_precision.hpp>
#include <spillway/app/training/run_plan.hpp>
#include <spillway/app/training/step_breakdown.hpp>
#include <spillway/distributed/collective.hpp>
#include <spillway/offload/trace.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>

namespace spillway::app {

struct StepResult {
  double loss = 0.0;  ///< Mean over the samples of the window; on several ranks the mean over the ranks of this is.
  double grad_norm = 0.0;  ///< Before clipping; of all ranks.
  double loss_scale = 1.0;
  bool skipped = false;       ///< Weights, moving average, running statistics and bank are as before the step.
  std::string overflow{};     ///< Of a skipped step: the first tensor that was not finite.
  std::uint64_t samples = 0;  ///< Of all ranks.
  PhaseTimes phases{};
};

/// One optimizer step: a window of micro-batches forward and backward, the mean of the gradients over the ranks,
/// clipping, the update, and what the method does after it. Bank and optimizer start to read what they need before the
/// encoders run, so that encoding hides the disk. Threads make the views of the steps to come (ViewDataReader).
/// Transfers of a step are submitted within it. All ranks make it together. One caller at a time.
class TrainingStep {
 public:
  /// All arguments outlive this. `trace` (may be null) gets the parts of a step.
  TrainingStep(const Config& config, const ImageSet& images, TrainingMethod& method, optimizer::Optimizer& optimizer,
               distributed::Collective& ranks, offload::Trace* trace = nullptr);

  /// @param order  Of the epoch that `place` is in, by the configuration's plan.
  /// @throws Error naming the first tensor that is not finite, where loss or gradients are not and the step can't be
  /// skipped (@see MixedPrecision; a parameter's value and, without a loss scale, the loss are beyond it): the weights
  /// are those before the step. What bank, optimizer and collective throw.
  StepResult run(const EpochOrder& order, const StepPlace& place);

  /// Of the threads that make the views.
  [[nodiscard]] DataReaderStats data_stats() const { return reader_.stats(); }

  [[nodiscard]] MixedPrecision& precision() noexcept { return precision_; }

 private:
  struct MicroBatch {
    std::uint64_t number = 0;
    std::uint64_t rows = 0;  ///< Of all ranks.
  };
  /// The samples of one step, on all ranks.
  struct Window {
    const EpochOrder& order;
    StepPlace place;
    std::vector<MicroBatch> micro_batches;  ///< Those with rows on some rank; a last window may have fewer samples.
    std::uint64_t samples = 0;
  };

  [[nodiscard]] Window window(const EpochOrder& order, const StepPlace& place) const;
  /// This rank's.
  [[nodiscard]] std::span<const std::uint32_t> samples_of(const Window& window, const MicroBatch& micro) const;
  [[nodiscard]] ViewPair views(const Window& window, const MicroBatch& micro);
  [[nodiscard]] std::optional<SampleBatch> batch_of_run(std::uint64_t index);
  double accumulate(const Window& window, const MicroBatch& micro);
  double accumulate_cached(const Window& window, WindowLoss& method);
  void clip(StepResult& result);
  void update(StepResult& result, const StepPlace& place);
  [[nodiscard]] std::string find_overflow(const StepResult& result, const StepPlace& place);
  [[nodiscard]] std::vector<at::Tensor> copy_buffers() const;
  void restore_buffers(const std::vector<at::Tensor>& copies) const;

  const Config& config_;
  const ImageSet& images_;
  TrainingMethod& method_;
  optimizer::Optimizer& optimizer_;
  distributed::Collective& ranks_;
  offload::Trace* const trace_;
  MixedPrecision precision_;
  std::vector<at::Tensor> parameters_;
  PhaseTimes phases_{};  // Of the step that runs.
  const RunPlan plan_;
  const RankPlace place_;
  std::optional<std::pair<std::uint64_t, EpochOrder>> ahead_;  // Of the epoch whose views are made.
  ViewMaker maker_;
  ViewDataReader reader_;
};

}  // namespace spillway::app

#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/counter_rng.hpp>
#include <spillway/app/encoders/encoder.hpp>
#include <spillway/offload/tiers.hpp>
#include <spillway/queue/negative_bank.hpp>

namespace spillway::distributed {
class Collective;
}

namespace spillway::app {

/// What a method sees of one micro-batch: two views of the same N images. N may be 0 where other ranks have rows.
struct ViewPair {
  at::Tensor view0;           ///< [N, 1, H, W] float32, on the CPU.
  at::Tensor view1;           ///< As view0.
  at::Tensor labels{};        ///< [N] int64, of the images' classes; not all methods look at them.
  StreamName key_order{};     ///< Names the order in which MoCo's keys are encoded; another for each micro-batch.
  std::int64_t all_rows = 0;  ///< N of all ranks together; not looked at on one rank.
};

/// A loss in which all rows of a window are compared with one another, for cached accumulation.
class WindowLoss {
 public:
  WindowLoss() = default;
  WindowLoss(const WindowLoss&) = delete;
  WindowLoss& operator=(const WindowLoss&) = delete;
  virtual ~WindowLoss() = default;

  /// What is compared, of one micro-batch: [N, projection_dim] for each view, and [1] for a parameter of the loss.
  /// Equal bits for equal weights.
  [[nodiscard]] virtual std::vector<at::Tensor> embed(const ViewPair& batch) = 0;
  /// The loss, the mean over the rows. @param views  The rows of all micro-batches, in order. @param labels  Theirs.
  [[nodiscard]] virtual at::Tensor compare(const std::vector<at::Tensor>& views, const at::Tensor& labels) = 0;
};

/// What is trained and what it is told, on one rank. Where there are several, all make the same calls. One window of
/// gradient accumulation goes
///     begin_step(); prefetch(); loss(...) and backward for each micro-batch; the optimizer's step; finish_window().
/// One caller at a time.
class TrainingMethod {
 public:
  TrainingMethod(const TrainingMethod&) = delete;
  TrainingMethod& operator=(const TrainingMethod&) = delete;
  virtual ~TrainingMethod() = default;

  /// What is evaluated.
  [[nodiscard]] ProjectedEncoder& network() noexcept { return network_; }
  /// What the optimizer trains: the network and, where there is one, the predictor.
  [[nodiscard]] virtual std::vector<NamedTensor> parameters() const { return network_.parameters(); }
  /// Those of them that no weight decay is to draw towards 0.
  [[nodiscard]] virtual std::vector<NamedTensor> undecayed_parameters() const { return {}; }
  /// What a forward pass changes: running statistics, those of a momentum encoder too.
  [[nodiscard]] virtual std::vector<NamedTensor> buffers() const { return network_.buffers(); }
  /// Within the optimizer's step: the float32 master of one of the parameters, of 16 bits, as the step has made it.
  /// What follows the parameters slowly takes it from here, as the parameter itself stands still in its rounding.
  virtual void master_changed(const at::Tensor& /*parameter*/, const at::Tensor& /*master*/) {}
  /// Null where a window is the sum of its micro-batches.
  [[nodiscard]] virtual WindowLoss* window_loss() noexcept { return nullptr; }
  /// Every tensor that a resumed run has to have back beside the bank's: parameters, running statistics, and those of
  /// a momentum encoder under `momentum_encoder.`. They share storage with the method; state_restored() after writing.
  [[nodiscard]] virtual std::vector<NamedTensor> state() const {
    std::vector<NamedTensor> state = parameters();
    for (NamedTensor& buffer : network_.buffers()) state.push_back(std::move(buffer));
    return state;
  }
  virtual void state_restored() {}
  /// Null where the method has none.
  [[nodiscard]] virtual queue::NegativeBank* bank() noexcept { return nullptr; }

  /// Before each step: what changes in the course of a run, of which `step` (from 0) is one of `steps`.
  virtual void begin_step(std::uint64_t /*step*/, std::uint64_t /*steps*/) {}
  /// Starts to read what the next loss needs from disk; returns at once.
  virtual void prefetch() {}
  /// Whether loss() is the mean over the rows that all ranks have of the micro-batch.
  [[nodiscard]] virtual bool compares_ranks() const noexcept { return false; }
  /// Loss of one micro-batch, the mean over its rows (0 where it has none), with the graph back to the parameters.
  [[nodiscard]] virtual at::Tensor loss(const ViewPair& batch) = 0;
  /// After the optimizer's step, what the method does once a window; nothing of it where the step was skipped.
  virtual void finish_window(bool /*stepped*/) {}

 protected:
  explicit TrainingMethod(ProjectedEncoder network) : network_(std::move(network)) {}

 private:
  ProjectedEncoder network_;
};

/// The method that a configuration names. Draws the weights from LibTorch's default generator; `tiers` hold the bank.
/// @param ranks  Of a run on several; null: one. Outlives the method.
/// @throws what the method's constructor throws.
[[nodiscard]] std::unique_ptr<TrainingMethod> make_method(const Config& config, ImageGeometry geometry,
                                                          std::shared_ptr<offload::Tiers> tiers,
                                                          distributed::Collective* ranks = nullptr);

}  // namespace spillway::app

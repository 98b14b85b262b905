#pragma once

#include <cstdint>
#include <unordered_map>

#include <torch/optim/optimizer.h>

#include <spillway/optimizer/loss_scale.hpp>

namespace spillway::distributed {
class Collective;
}

namespace spillway::optimizer {

class Optimizer;

/// Gradient scaling for fp16, as torch.amp.GradScaler in PyTorch (LibTorch has none):
///
///     scaler.scale(loss).backward();
///     scaler.unscale_(*optimizer);      // only where gradients are looked at or clipped
///     scaler.step(*optimizer);          // skipped if a gradient overflowed
///     scaler.update();
///
/// With several ranks an overflow on one of them skips the step on all. Takes any optimizer, wrapped or not; one whose
/// gradients are taken agrees with the other ranks itself, and needs no `ranks`. One caller at a time; ranks make the
/// same calls in the same order.
class GradScaler {
 public:
  /// @param ranks  outlives this; null: one rank.
  explicit GradScaler(const LossScaleOptions& options = {}, distributed::Collective* ranks = nullptr);

  /// loss × scale, in the loss's dtype but never narrower than float32.
  [[nodiscard]] at::Tensor scale(const at::Tensor& loss) const;
  /// Divides the gradients of the optimizer's parameters by the scale, in place, and looks for overflows, on all ranks.
  /// @throws Error if it was called for this optimizer since the last update(), or for a sparse gradient.
  void unscale_(torch::optim::Optimizer& optimizer);
  /// unscale_() where nobody has called it, then the optimizer's step unless a gradient on some rank was infinite or
  /// NaN. @returns whether it was taken. @throws Error if it was called since the last update().
  bool step(torch::optim::Optimizer& optimizer);
  /// The same for a wrapped optimizer, clipped to `max_norm`, in two passes over the gradients: one finds overflows and
  /// the norm, and the update itself divides and clips. `.grad` stays as backward() left it (unscaled only where
  /// unscale_() was called). Where it is not looked at, this is the fastest way.
  struct ClippedStep {
    bool taken = false;
    double norm = 0.0;  ///< Of the unscaled gradients, before clipping; not finite where the step was not taken.
  };
  /// @param max_norm  > 0; infinity clips nothing. @throws as step() and clip_grad_norm_().
  ClippedStep step_clipped(Optimizer& optimizer, double max_norm);
  /// Adapts the scale to what was found since the last update, once for all optimizers.
  /// @throws Error if no step was taken since, or as LossScale::update.
  void update();

  [[nodiscard]] double value() const noexcept { return scale_.value(); }
  [[nodiscard]] std::uint64_t skipped_steps() const noexcept { return skipped_steps_; }
  /// What a checkpoint has to keep.
  [[nodiscard]] LossScale::State state() const noexcept { return scale_.state(); }
  void restore(const LossScale::State& state) { scale_.restore(state); }

 private:
  struct Progress {
    bool unscaled = false;
    bool stepped = false;
    bool found_inf = false;
  };

  [[nodiscard]] bool on_any_rank(bool found) const;

  LossScale scale_;
  distributed::Collective* ranks_;
  std::unordered_map<const torch::optim::Optimizer*, Progress> progress_;  // Since the last update.
  std::uint64_t skipped_steps_ = 0;
};

}  // namespace spillway::optimizer

namespace spillway {
using optimizer::GradScaler;
using optimizer::LossScaleOptions;
using optimizer::LossScaleRule;
}  // namespace spillway

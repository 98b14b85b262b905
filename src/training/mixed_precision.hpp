#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/distributed/collective.hpp>
#include <spillway/optimizer/grad_scaler.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>

namespace spillway::app {

/// While it lives, this thread's operations on the CPU are cast as `torch_autocast` says, if it is on. Copies of
/// weights that autocast made are forgotten at the end.
class AutocastScope {
 public:
  explicit AutocastScope(const AutocastConfig& config);
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;
  ~AutocastScope();

 private:
  bool on_;
  bool before_ = false;
  at::ScalarType type_before_ = at::kBFloat16;
};

/// The loss scale of a run, and the rule which steps are skipped: with `fp16` DeepSpeed's, with float16 autocast
/// torch.amp.GradScaler's with its defaults and 1 as the smallest scale; with `bf16` no scale, and where
/// check_grad_overflow asks for it a step whose gradients are not finite is skipped too. All ranks decide alike. One
/// caller at a time.
class MixedPrecision {
 public:
  /// `ranks` outlives this.
  MixedPrecision(const Config& config, distributed::Collective& ranks);

  /// The loss to call backward() on.
  [[nodiscard]] at::Tensor scaled(const at::Tensor& loss) const { return scaler_ ? scaler_->scale(loss) : loss; }
  /// 1 where there is none.
  [[nodiscard]] double loss_scale() const noexcept { return scaler_ ? scaler_->value() : 1.0; }
  /// Undoes the scale and clips. @returns the norm before clipping, not finite where a gradient is not.
  double clip(optimizer::Optimizer& optimizer, double max_norm);
  /// After clip(): the optimizer's step, or skips it if `norm` is not finite. @returns whether it was made.
  /// @throws Error where too many steps in a row were skipped and the scale can't be lowered.
  bool step(optimizer::Optimizer& optimizer, double norm);

  /// What a checkpoint keeps: [5] float64; undefined where no step is ever skipped.
  [[nodiscard]] at::Tensor state() const;
  /// From state() of a run of the same configuration.
  void restore(const at::Tensor& state);

 private:
  bool may_skip_;
  std::optional<optimizer::GradScaler> scaler_;
  unsigned overflows_ = 0;  // In a row, where there is no scale.
};

/// A line for the user where this processor computes in the run's 16-bit type without instructions for it.
[[nodiscard]] std::optional<std::string> slow_precision(const Config& config);

}  // namespace spillway::app

#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include <spillway/app/config/config.hpp>

namespace spillway::app {

/// What a schedule says of one optimizer step.
struct ScheduledRate {
  double lr = 0.0;
  std::optional<std::array<double, 2>> betas;  ///< Where the schedule moves them too.
};

/// The learning rate of each optimizer step, by DeepSpeed's formulas (deepspeed/runtime/lr_schedules.py of 0.19). A
/// function of the step alone, so that a resumed run has nothing to restore. With t the index of the step from 0,
/// n = max(2, warmup_num_steps), N = total_num_steps and w = ln(t + 1) / ln(n) (log) or t / n (linear):
///   WarmupLR        min + (max - min) w for t < n, then max.
///   WarmupDecayLR   the same, then min + (max - min) max(0, (N - t) / max(1, N - n)).
///   WarmupCosineLR  the optimizer's rate times min_ratio + (1 - min_ratio) w for t < n, then times
///                   c + (1 - c) (1 + cos(pi min(1, (t - n + 1) / max(1, N - n)))) / 2, c being cos_min_ratio.
///   OneCycle        up from cycle_min_lr in the first part of a cycle, down in the second, in stairs where asked for;
///                   then cycle_min_lr / (1 + decay_lr_rate k / decay_step_size), k steps after the cycle. The first of
///                   the betas goes the other way, from cycle_max_mom, and then grows; the second is 0.99.
/// DeepSpeed moves the rate after a step and begins with that of t = 0, so that its warm-ups are one step behind these.
class LrSchedule {
 public:
  /// @param optimizer_lr  The rate of the optimizer's own.
  /// @param run_steps     Of the whole run, for what the configuration leaves open.
  LrSchedule(const SchedulerConfig& config, double optimizer_lr, std::uint64_t run_steps);

  /// @param step  Index of an optimizer step, from 0.
  [[nodiscard]] ScheduledRate at(std::uint64_t step) const noexcept;

 private:
  [[nodiscard]] double warmup(double step) const noexcept;
  [[nodiscard]] double warmup_decay(double step) const noexcept;
  [[nodiscard]] double cosine_ratio(double step) const noexcept;
  [[nodiscard]] double cycle_height(std::uint64_t step) const noexcept;
  [[nodiscard]] ScheduledRate one_cycle(std::uint64_t step) const noexcept;

  SchedulerConfig config_;
  double optimizer_lr_;
  double max_lr_;
  double warmup_steps_;
  double total_steps_;
  std::uint64_t first_steps_;  // Of a cycle.
  std::uint64_t second_steps_;
};

}  // namespace spillway::app

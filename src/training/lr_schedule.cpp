#include <spillway/app/training/lr_schedule.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace spillway::app {
namespace {

constexpr std::uint64_t kLongestAutomaticWarmup = 1000;  // DeepSpeed's default, where a tenth of the run is more.
constexpr double kSecondBeta = 0.99;                     // DeepSpeed's, wherever OneCycle moves the first.
constexpr double kLargestBeta = 0.999;                   // A decay lets the first grow, which has to stay below 1.

}  // namespace

LrSchedule::LrSchedule(const SchedulerConfig& config, double optimizer_lr, std::uint64_t run_steps)
    : config_(config),
      optimizer_lr_(optimizer_lr),
      max_lr_(config.warmup_max_lr.value_or(optimizer_lr)),
      first_steps_(config.cycle_first_step_size),
      second_steps_(config.cycle_second_step_size.value_or(first_steps_)) {
  const std::uint64_t warmup = config.warmup_num_steps.value_or(std::min(run_steps / 10, kLongestAutomaticWarmup));
  warmup_steps_ = std::max(2.0, static_cast<double>(warmup));
  total_steps_ = static_cast<double>(config.total_num_steps.value_or(run_steps));
}

/// The height of a warm-up, 0 to 1, at a step within it.
double LrSchedule::warmup(double step) const noexcept {
  return config_.warmup_type == WarmupCurve::kLog ? std::log(step + 1.0) / std::log(warmup_steps_)
                                                  : step / warmup_steps_;
}

double LrSchedule::warmup_decay(double step) const noexcept {
  return std::max(0.0, (total_steps_ - step) / std::max(1.0, total_steps_ - warmup_steps_));
}

double LrSchedule::cosine_ratio(double step) const noexcept {
  if (step < warmup_steps_) {
    return config_.warmup_min_ratio + (1.0 - config_.warmup_min_ratio) * warmup(step);
  }
  const double progress = std::min(1.0, (step - warmup_steps_ + 1.0) / std::max(1.0, total_steps_ - warmup_steps_));
  return config_.cos_min_ratio + (1.0 - config_.cos_min_ratio) * (1.0 + std::cos(std::numbers::pi * progress)) / 2.0;
}

/// How far up a cycle is, 0 to 1. In stairs it stays where it is until the next one is reached.
double LrSchedule::cycle_height(std::uint64_t step) const noexcept {
  const bool up = step <= first_steps_;
  const std::uint64_t stairs =
      up ? config_.cycle_first_stair_count : config_.cycle_second_stair_count.value_or(config_.cycle_first_stair_count);
  const std::uint64_t from_bottom = up ? step : first_steps_ + second_steps_ - step;
  const std::uint64_t steps = up ? first_steps_ : second_steps_;
  if (stairs > 0) {
    return static_cast<double>(from_bottom * stairs / steps) / static_cast<double>(stairs);
  }
  return static_cast<double>(from_bottom) / static_cast<double>(steps);
}

ScheduledRate LrSchedule::one_cycle(std::uint64_t step) const noexcept {
  const std::uint64_t cycle_steps = first_steps_ + second_steps_;
  ScheduledRate rate;
  double momentum = config_.cycle_max_mom;
  if (step <= cycle_steps) {
    const double height = cycle_height(step);
    rate.lr = config_.cycle_min_lr + (config_.cycle_max_lr - config_.cycle_min_lr) * height;
    momentum -= (config_.cycle_max_mom - config_.cycle_min_mom) * height;
  } else {
    const double interval = config_.decay_step_size == 0 ? 0.0
                                                         : static_cast<double>(step - cycle_steps) /
                                                               static_cast<double>(config_.decay_step_size);
    rate.lr = config_.cycle_min_lr / (1.0 + config_.decay_lr_rate * interval);
    momentum *= 1.0 + config_.decay_mom_rate * interval;
  }
  if (config_.cycle_momentum) {
    rate.betas = {std::min(momentum, kLargestBeta), kSecondBeta};
  }
  return rate;
}

ScheduledRate LrSchedule::at(std::uint64_t step) const noexcept {
  const auto t = static_cast<double>(step);
  const auto between = [this](double height) {
    return ScheduledRate{config_.warmup_min_lr + (max_lr_ - config_.warmup_min_lr) * height, {}};
  };
  switch (config_.kind) {
    case SchedulerKind::kNone:
      break;
    case SchedulerKind::kWarmup:
      return between(t < warmup_steps_ ? warmup(t) : 1.0);
    case SchedulerKind::kWarmupDecay:
      return between(t < warmup_steps_ ? warmup(t) : warmup_decay(t));
    case SchedulerKind::kWarmupCosine:
      return {optimizer_lr_ * cosine_ratio(t), {}};
    case SchedulerKind::kOneCycle:
      return one_cycle(step);
  }
  return {optimizer_lr_, {}};
}

}  // namespace spillway::app

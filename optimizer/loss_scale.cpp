#include <spillway/optimizer/loss_scale.hpp>

#include <algorithm>
#include <cmath>
#include <string>

#include <spillway/offload/error.hpp>

namespace spillway::optimizer {
namespace {

void require(bool fits, const char* name, double value, const char* wanted) {
  if (!fits) {
    throw ConfigError(std::string("loss scale: ") + name + " is " + std::to_string(value) + ", wanted " + wanted);
  }
}

bool positive(double value) { return std::isfinite(value) && value > 0.0; }

}  // namespace

LossScale::LossScale(const LossScaleOptions& options)
    : options_(options), value_(options.init_scale), hysteresis_left_(options.hysteresis) {
  require(positive(options.init_scale), "init_scale", options.init_scale, "a finite value above 0");
  require(std::isfinite(options.growth_factor) && options.growth_factor > 1.0, "growth_factor", options.growth_factor,
          "a finite value above 1");
  require(options.backoff_factor > 0.0 && options.backoff_factor < 1.0, "backoff_factor", options.backoff_factor,
          "a value between 0 and 1");
  require(options.growth_interval > 0, "growth_interval", 0.0, "1 or more");
  require(options.min_scale >= 0.0 && options.min_scale <= options.init_scale, "min_scale", options.min_scale,
          "a value from 0 to init_scale");
  require(options.hysteresis > 0, "hysteresis", 0.0, "1 or more");
}

void LossScale::update(bool found_inf) {
  options_.rule == LossScaleRule::kTorch ? update_as_torch(found_inf) : update_as_deepspeed(found_inf);
  if (!found_inf) {
    overflows_at_min_ = 0;
  } else if (options_.overflows_at_min_max > 0 && overflows_at_min_ >= options_.overflows_at_min_max) {
    throw Error(std::to_string(overflows_at_min_) + " steps in a row overflowed at the smallest loss scale, " +
                std::to_string(value_) +
                ", and were skipped: the loss itself is not finite, or fp16 is too narrow for this model; lower the "
                "learning rate or train in bf16");
  }
}

void LossScale::back_off() {
  overflows_at_min_ = value_ <= options_.min_scale ? overflows_at_min_ + 1 : 0;
  value_ = std::max(value_ * options_.backoff_factor, options_.min_scale);
}

void LossScale::update_as_torch(bool found_inf) {
  if (found_inf) {
    back_off();
    good_steps_ = 0;
  } else if (++good_steps_ == options_.growth_interval) {
    const double grown = value_ * options_.growth_factor;
    // As PyTorch: a scale that float32 can't hold is not taken.
    value_ = std::isfinite(static_cast<float>(grown)) ? grown : value_;
    good_steps_ = 0;
  }
}

void LossScale::update_as_deepspeed(bool found_inf) {
  if (found_inf) {
    good_steps_ = 0;
    if (hysteresis_left_ == 1) {
      back_off();
    } else {
      --hysteresis_left_;
    }
    return;
  }
  if (options_.consecutive_hysteresis) {
    hysteresis_left_ = options_.hysteresis;
  }
  // The first step after an overflow is number 0.
  if (good_steps_ > 0 && good_steps_ % options_.growth_interval == 0) {
    hysteresis_left_ = options_.hysteresis;
    value_ *= options_.growth_factor;
  }
  ++good_steps_;
}

LossScale::State LossScale::state() const noexcept {
  return {value_, good_steps_, hysteresis_left_, overflows_at_min_};
}

void LossScale::restore(const State& state) {
  require(positive(state.value), "the saved value", state.value, "a finite value above 0");
  value_ = state.value;
  good_steps_ = state.good_steps;
  hysteresis_left_ = std::clamp(state.hysteresis_left, 1U, options_.hysteresis);
  overflows_at_min_ = state.overflows_at_min;
}

}  // namespace spillway::optimizer

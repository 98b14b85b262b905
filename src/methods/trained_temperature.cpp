#include <spillway/app/methods/trained_temperature.hpp>

#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

namespace spillway::app {
namespace {

constexpr double kLeast = 0.01;  // Of the temperature: CLIP's logits are scaled by 100 at most.

}  // namespace

TrainedTemperature::TrainedTemperature(const ContrastiveConfig& config) : value_(config.temperature) {
  if (config.learnable_temperature) {
    log_scale_ = at::full({1}, -std::log(value_), at::kFloat).requires_grad_();
  }
}

queue::Temperature TrainedTemperature::at(const at::Tensor& log_scale) const {
  return log_scale.defined() ? queue::Temperature(log_scale.neg().exp()) : queue::Temperature(value_);
}

std::vector<NamedTensor> TrainedTemperature::parameters() const {
  if (!log_scale_.defined()) return {};
  return {{"temperature.log_scale", log_scale_}};
}

void TrainedTemperature::bound() {
  if (!log_scale_.defined()) return;
  const at::NoGradGuard no_grad;
  log_scale_.clamp_max_(-std::log(kLeast));
}

}  // namespace spillway::app

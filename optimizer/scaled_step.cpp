// Steps of a wrapped optimizer that scale gradients as they use them.
#include <cmath>
#include <vector>

#include <ATen/core/grad_mode.h>

#include <spillway/offload/error.hpp>
#include <spillway/optimizer/grad_clip.hpp>
#include <spillway/optimizer/scaled_gradients.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>
#include <spillway/optimizer/taken_gradients.hpp>

namespace spillway::optimizer {

void Optimizer::step_scaled(const GradientScale& scale) {
  refuse_if_poisoned();
  if (gradients_ != nullptr) {
    throw Error("gradients that are taken are scaled where they lie: call clip_grad_norm_() and step()");
  }
  const at::NoGradGuard no_grad;
  follow_groups();
  if (state_ == nullptr) {
    std::vector<at::Tensor> parameters = all_parameters();
    std::erase_if(parameters, [](const at::Tensor& parameter) { return !parameter.grad().defined(); });
    const ScaledGradients scaled(parameters, scale);
    wrapped_->step();
    return;
  }
  state_->check(param_groups_);
  poison_on_failure([&] { state_->step(scale); });
}

double Optimizer::clip_in_place(double max_norm) {
  static_cast<void>(clip_factor(0.0, max_norm));  // Refuses before anything is read.
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> parameters = all_parameters();
  const double norm = gradient_norm(parameters, parallel_);
  const double factor = std::isfinite(norm) ? clip_factor(norm, max_norm) : 1.0;
  for (const at::Tensor& parameter : parameters) {
    if (factor != 1.0 && parameter.grad().defined()) {
      parameter.grad().mul_(factor);
    }
  }
  return norm;
}

double Optimizer::step_clipped(double max_norm) {
  static_cast<void>(clip_factor(0.0, max_norm));  // Refuses before anything is read.
  if (gradients_ != nullptr) {
    const double norm = clip_grad_norm_(max_norm);
    step();
    return norm;
  }
  const at::NoGradGuard no_grad;
  const double norm = gradient_norm(all_parameters(), parallel_);
  step_scaled({.clip_factor = clip_factor(norm, max_norm)});
  return norm;
}

}  // namespace spillway::optimizer

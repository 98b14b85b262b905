// Steps of a wrapped optimizer that are not made, and what is watched in those that are.
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>

#include <spillway/optimizer/sharded_optimizer.hpp>
#include <spillway/optimizer/taken_gradients.hpp>

namespace spillway::optimizer {

void Optimizer::skip_step() {
  if (gradients_ != nullptr) {
    gradients_->use_up();
  }
  if (state_ != nullptr) {
    state_->give_up_prefetch();
  }
}

at::Tensor Optimizer::find_non_finite_gradient() {
  refuse_if_poisoned();
  if (gradients_ != nullptr) {
    at::Tensor found;
    poison_if_fatal([&] { found = gradients_->find_non_finite(); });
    return found;
  }
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : all_parameters()) {
    if (parameter.grad().defined() && !at::isfinite(parameter.grad()).all().item<bool>()) {
      return parameter;
    }
  }
  return {};
}

void Optimizer::observe_masters(MasterObserver observer) {
  if (state_ != nullptr) {
    state_->observe_masters(std::move(observer));
  }
}

std::uint64_t Optimizer::read_ahead_bytes() const { return state_ == nullptr ? 0 : state_->read_ahead_bytes(); }

}  // namespace spillway::optimizer

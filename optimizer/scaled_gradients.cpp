#include <spillway/optimizer/scaled_gradients.hpp>

#include <limits>
#include <unordered_set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/mul.h>

namespace spillway::optimizer {

ScaledGradients::ScaledGradients(const std::vector<at::Tensor>& parameters, const GradientScale& scale) {
  const bool limits = scale.limit < std::numeric_limits<float>::infinity();
  if (scale.factor == 1.0 && !limits) {
    return;
  }
  const at::NoGradGuard no_grad;
  kept_.reserve(parameters.size());
  std::unordered_set<const c10::TensorImpl*> scaled_once;
  for (const at::Tensor& parameter : parameters) {
    if (!scaled_once.insert(parameter.unsafeGetTensorImpl()).second) {
      continue;
    }
    const at::Tensor gradient = parameter.grad();
    at::Tensor scaled = gradient.mul(scale.factor);
    if (limits) {
      scaled.clamp_(-scale.limit, scale.limit);
    }
    kept_.push_back({parameter, gradient});
    parameter.mutable_grad() = std::move(scaled);
  }
}

ScaledGradients::~ScaledGradients() {
  for (Kept& kept : kept_) {
    kept.parameter.mutable_grad() = std::move(kept.gradient);
  }
}

}  // namespace spillway::optimizer

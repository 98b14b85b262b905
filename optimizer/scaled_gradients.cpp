#include <spillway/optimizer/scaled_gradients.hpp>

#include <unordered_set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>

#include <spillway/optimizer/gradient_transform.hpp>

namespace spillway::optimizer {

ScaledGradients::ScaledGradients(const std::vector<at::Tensor>& parameters, const GradientScale& scale) {
  const std::vector<GradientTransform> transforms = transforms_of(scale);
  if (transforms.empty()) {
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
    at::Tensor scaled = gradient.clone(at::MemoryFormat::Preserve);
    transform(transforms, scaled);
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

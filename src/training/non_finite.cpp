#include <spillway/app/training/non_finite.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>

namespace spillway::app {

NonFinite find_non_finite(const std::vector<NamedTensor>& parameters, optimizer::Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& parameter : parameters) {
    if (!at::isfinite(parameter.tensor).all().item<bool>()) return {"the value of " + parameter.name, true};
  }
  const at::Tensor found = optimizer.find_non_finite_gradient();
  for (const NamedTensor& parameter : parameters) {
    if (found.defined() && found.is_same(parameter.tensor)) return {"the gradient of " + parameter.name, false};
  }
  return {"the loss, and none of the parameters or of this rank's gradients", false};
}

}  // namespace spillway::app

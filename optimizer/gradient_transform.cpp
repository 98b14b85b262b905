#include <spillway/optimizer/gradient_transform.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/clamp.h>

namespace spillway::optimizer {

void GradientTransform::apply(at::Tensor& gradient) const {
  switch (kind) {
    case Kind::kDivide:
      gradient.div_(value);
      return;
    case Kind::kMultiply:
      gradient.mul_(value);
      return;
    case Kind::kLimit:
      at::clamp_(gradient, -value, value);
      return;
  }
}

}  // namespace spillway::optimizer

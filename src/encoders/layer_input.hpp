#pragma once

#include <ATen/core/Tensor.h>

namespace spillway::app {

/// What a layer with this weight takes: `x` in the weight's type, so that layers of float32 may stand among those of 16
/// bits; under autocast `x` itself, as operations cast it.
[[nodiscard]] at::Tensor input_of(const at::Tensor& weight, const at::Tensor& x);

}  // namespace spillway::app

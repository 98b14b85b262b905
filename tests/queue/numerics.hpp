#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spillway::test {

/// Largest element of |got - wanted|, in float64; 0 where there are no elements.
[[nodiscard]] double max_error(const at::Tensor& got, const at::Tensor& wanted);

/// Max-norm of the error over the max-norm of what is wanted.
[[nodiscard]] double relative_error(const at::Tensor& got, const at::Tensor& wanted);

/// Rows over their length, differentiable: x / max(|x|, 1e-12), as the golden data was made.
[[nodiscard]] at::Tensor normalised(const at::Tensor& rows);

/// A scalar as a function of some tensors.
using ScalarFunction = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

/// The largest difference between the gradient by autograd and that by central differences, over all elements of the
/// float64 `inputs`, over the largest element of the latter (1 at least).
[[nodiscard]] double gradient_error(const ScalarFunction& function, const std::vector<at::Tensor>& inputs,
                                    double step = 1e-6);

}  // namespace spillway::test

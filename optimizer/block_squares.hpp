#pragma once

#include <span>
#include <vector>

#include <spillway/optimizer/gradient_transform.hpp>

namespace at {
class Tensor;
}
namespace spillway::offload {
class Parallel;
}

namespace spillway::optimizer {

/// The elements of `tensor` as a row: in the order of its memory where they lie dense (a view then), else in logical
/// order.
[[nodiscard]] at::Tensor in_memory_order(const at::Tensor& tensor);

/// Appends the sum of squares of every block of kSquaresBlockNumel elements of a gradient, in float64 and in the order
/// of its memory. A sum is finite if and only if all of its block is, as long as squares do not overflow float64.
/// @param gradient  floating-point, of any device and strides.
/// @param transforms  of what is measured: made block by block, in float32 or float64, so that they take no memory. The
/// gradient stays as it is.
void append_squares(const at::Tensor& gradient, const offload::Parallel& parallel, std::vector<double>& sums,
                    std::span<const GradientTransform> transforms = {});

/// The same for several gradients, one after the other, in as few passes as can be: many small ones cost no more than
/// one large one.
void append_squares(std::span<const at::Tensor> gradients, const offload::Parallel& parallel,
                    std::vector<double>& sums);

}  // namespace spillway::optimizer

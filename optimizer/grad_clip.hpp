#pragma once

#include <span>

namespace at {
class Tensor;
}
namespace spillway::offload {
class Parallel;
}

namespace spillway::optimizer {

/// The 2-norm of all gradients together, 0 where there is none. Sums of squares are taken in float64 over blocks of
/// 16,384 elements, cut at the ends of tensors, and added in the order of blocks: the result depends neither on where a
/// gradient lies nor on how many threads there are. Agrees with torch::nn::utils::clip_grad_norm_ to 1e-6. Not finite
/// where a gradient is not.
/// @throws Error for a sparse gradient.
[[nodiscard]] double gradient_norm(std::span<const at::Tensor> parameters);
/// The same on threads that are there already.
[[nodiscard]] double gradient_norm(std::span<const at::Tensor> parameters, const offload::Parallel& parallel);

/// What gradients of this norm are multiplied by to have at most `max_norm`: max_norm / (norm + 1e-6) if that is below
/// 1, as PyTorch does, else 1. NaN for a norm that is. @throws ConfigError for a max_norm that is not positive.
[[nodiscard]] double clip_factor(double norm, double max_norm);

/// Multiplies every gradient by max_norm / (norm + 1e-6) if that is below 1, in place, as PyTorch does. A norm that is
/// not finite makes gradients NaN or 0, as there: check it, or let a GradScaler skip the step.
/// @param max_norm  > 0; infinity only measures.
/// @returns the norm before. @throws ConfigError for a max_norm that is not positive, Error for a sparse gradient.
double clip_grad_norm_(std::span<const at::Tensor> parameters, double max_norm);
/// The same on threads that are there already.
double clip_grad_norm_(std::span<const at::Tensor> parameters, double max_norm, const offload::Parallel& parallel);

/// Limits every element of every gradient to [-limit, limit], in place. @throws ConfigError for a limit below 0.
void clip_grad_value_(std::span<const at::Tensor> parameters, double limit);

}  // namespace spillway::optimizer

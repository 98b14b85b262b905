#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "optimizer/training.hpp"
#include "support/property.hpp"

namespace spillway::test {

/// A random model for optimizers with fused kernels.
struct RandomModel {
  TensorGroups weights;
  Recipe recipe;
};

struct RandomModelLimits {
  std::vector<at::ScalarType> types{at::kFloat, at::kBFloat16, at::kHalf, at::kDouble};
  bool tied = true;  ///< Some parameter may be listed twice.
};

/// 1 to 40 parameters of odd sizes, empty ones and ones of a single element among them, in 1 to 3 groups with options
/// of their own; contiguous, transposed and channels-last.
RandomModel random_model(Random& random, const RandomModelLimits& limits = {});

/// Other options for every group, as a schedule or a user would set them between two steps.
void change_options(torch::optim::Optimizer& optimizer, Random& random);

/// A gradient for every parameter, undefined for one in five: like the parameter, in another order in memory, or one
/// element expanded. The same tensor for a parameter that is listed twice.
TensorGroups random_gradients(const TensorGroups& weights, Random& random);
void give(const TensorGroups& weights, const TensorGroups& gradients);

/// Like clone(), where a parameter that is listed twice stays one.
TensorGroups clone_tied(const TensorGroups& groups);

/// The weights after one step of LibTorch's own optimizer in float64, from the weights, state, options and gradients
/// that `optimizer` has now. @param recipe  made `optimizer`.
TensorGroups exact_step(const Optimizer& optimizer, const Recipe& recipe, const TensorGroups& weights,
                        const TensorGroups& gradients);

/// What worst_ulps() may be, as the kernels claim.
inline constexpr double kUlpBound = 4.0;

/// The largest error of a weight, beyond the rounding of a 16-bit one, in units of the last place of a float32 as large
/// as max(|w|, |Δw|). Passed over are parameters of float64, and tied ones: their two updates may nearly undo each
/// other, which leaves more of their errors than of them.
double worst_ulps(const TensorGroups& before, const TensorGroups& after, const TensorGroups& exact);

}  // namespace spillway::test

#include <spillway/app/encoders/grouped_batch_norm.hpp>

#include <algorithm>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace spillway::app {
namespace {

constexpr bool kCudnnAllowed = true;
constexpr std::int64_t kLeastRows = 2;

/// A view, or a float32 copy of a 16-bit parameter: statistics are float32, and so is what goes with them.
at::Tensor wide(const at::Tensor& parameter) {
  return parameter.element_size() == 2 ? parameter.to(at::kFloat) : parameter.view_as(parameter);
}

}  // namespace

GroupedBatchNorm::GroupedBatchNorm(std::int64_t features, std::int64_t groups, double momentum, double eps)
    : groups_(groups), momentum_(momentum), eps_(eps) {
  weight = register_parameter("weight", at::ones({features}));
  bias = register_parameter("bias", at::zeros({features}));
  running_mean = register_buffer("running_mean", at::zeros({features}));
  running_var = register_buffer("running_var", at::ones({features}));
  num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
}

at::Tensor GroupedBatchNorm::forward(const at::Tensor& input, Pass pass) {
  if (!is_training() || input.size(0) < kLeastRows) {
    return at::batch_norm(input, wide(weight), wide(bias), running_mean, running_var, false, momentum_, eps_,
                          kCudnnAllowed);
  }
  return normalise_groups(input, pass);
}

at::Tensor GroupedBatchNorm::normalise_groups(const at::Tensor& input, Pass pass) {
  const std::int64_t rows = input.size(0);
  const std::int64_t groups = std::clamp<std::int64_t>(rows / kLeastRows, 1, groups_);
  std::vector<at::Tensor> normalised;
  at::Tensor mean = at::zeros_like(running_mean);
  at::Tensor variance = at::zeros_like(running_var);
  // Views, in which the groups' gradients are added up before they go on: another call of this module, run again in
  // backward or not, adds one tensor to the parameter's gradient, and the order of the sum stays the same.
  const at::Tensor scale = wide(weight);
  const at::Tensor shift = wide(bias);
  for (const at::Tensor& part : input.tensor_split(groups)) {
    // With momentum 1 the buffers come back as this group's statistics, whatever they held.
    const at::Tensor part_mean = at::zeros_like(running_mean);
    const at::Tensor part_variance = at::ones_like(running_var);
    normalised.push_back(at::batch_norm(part, scale, shift, part_mean, part_variance, true, 1.0, eps_, kCudnnAllowed));
    const double share = static_cast<double>(part.size(0)) / static_cast<double>(rows);
    mean.add_(part_mean, share);
    variance.add_(part_variance, share);
  }
  if (pass == Pass::kFirst) move_running_statistics(mean, variance);
  return groups == 1 ? normalised.front() : at::cat(normalised);
}

void GroupedBatchNorm::move_running_statistics(const at::Tensor& mean, const at::Tensor& variance) {
  const at::NoGradGuard no_grad;
  running_mean.mul_(1.0 - momentum_).add_(mean, momentum_);
  running_var.mul_(1.0 - momentum_).add_(variance, momentum_);
  num_batches_tracked.add_(1);
}

}  // namespace spillway::app

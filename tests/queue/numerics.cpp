#include <queue/numerics.hpp>

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

namespace spillway::test {

double max_error(const at::Tensor& got, const at::Tensor& wanted) {
  if (wanted.numel() == 0) return got.numel() == 0 ? 0.0 : 1.0;
  return got.detach().to(at::kDouble).sub(wanted.detach().to(at::kDouble)).abs().max().item<double>();
}

double relative_error(const at::Tensor& got, const at::Tensor& wanted) {
  return max_error(got, wanted) / std::max(wanted.abs().max().item<double>(), 1e-300);
}

at::Tensor normalised(const at::Tensor& rows) { return rows / rows.norm(2, {1}, /*keepdim=*/true).clamp_min(1e-12); }

double gradient_error(const ScalarFunction& function, const std::vector<at::Tensor>& inputs, double step) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.detach().clone().requires_grad_());
  function(leaves).backward();

  const at::NoGradGuard no_grad;
  double worst = 0.0;
  double scale = 1.0;
  for (const at::Tensor& leaf : leaves) {
    const at::Tensor values = leaf.detach().view({-1});
    const at::Tensor gradient = leaf.grad().reshape({-1});
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      const double value = values[i].item<double>();
      values[i].fill_(value + step);
      const double above = function(leaves).item<double>();
      values[i].fill_(value - step);
      const double below = function(leaves).item<double>();
      values[i].fill_(value);
      const double numeric = (above - below) / (2 * step);
      worst = std::max(worst, std::abs(numeric - gradient[i].item<double>()));
      scale = std::max(scale, std::abs(numeric));
    }
  }
  return worst / scale;
}

}  // namespace spillway::test

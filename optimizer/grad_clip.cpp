#include <spillway/optimizer/grad_clip.hpp>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>

#include <spillway/offload/error.hpp>
#include <spillway/offload/parallel.hpp>
#include <spillway/optimizer/block_squares.hpp>

namespace spillway::optimizer {

double gradient_norm(std::span<const at::Tensor> parameters, const offload::Parallel& parallel) {
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& gradient = parameters[i].grad();
    if (!gradient.defined()) {
      continue;
    }
    if (gradient.layout() != at::kStrided) {
      throw Error("the gradient of parameter " + std::to_string(i) +
                  " is sparse; clipping needs dense gradients: take to_dense() of it");
    }
    gradients.push_back(gradient);
  }
  std::vector<double> sums;
  append_squares(gradients, parallel, sums);
  return std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0));
}

double clip_factor(double norm, double max_norm) {
  if (!(max_norm > 0.0)) {
    throw ConfigError("gradients can't be clipped to a norm of " + std::to_string(max_norm) + "; wanted one above 0");
  }
  const double factor = max_norm / (norm + 1e-6);
  return factor < 1.0 || std::isnan(factor) ? factor : 1.0;
}

double gradient_norm(std::span<const at::Tensor> parameters) { return gradient_norm(parameters, offload::Parallel()); }

double clip_grad_norm_(std::span<const at::Tensor> parameters, double max_norm) {
  return clip_grad_norm_(parameters, max_norm, offload::Parallel());
}

double clip_grad_norm_(std::span<const at::Tensor> parameters, double max_norm, const offload::Parallel& parallel) {
  static_cast<void>(clip_factor(0.0, max_norm));  // Refuses before anything is read.
  const at::NoGradGuard no_grad;
  const double norm = gradient_norm(parameters, parallel);
  const double factor = clip_factor(norm, max_norm);
  if (factor != 1.0) {
    for (const at::Tensor& parameter : parameters) {
      if (parameter.grad().defined()) {
        parameter.grad().mul_(factor);
      }
    }
  }
  return norm;
}

void clip_grad_value_(std::span<const at::Tensor> parameters, double limit) {
  if (!(limit >= 0.0)) {
    throw ConfigError("gradients can't be limited to " + std::to_string(limit) + "; wanted a limit of 0 or more");
  }
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) {
      at::clamp_(parameter.mutable_grad(), -limit, limit);
    }
  }
}

}  // namespace spillway::optimizer

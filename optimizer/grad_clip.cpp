#include <spillway/optimizer/grad_clip.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>

#include <spillway/offload/error.hpp>
#include <spillway/offload/parallel.hpp>
#include <spillway/optimizer/gradient_kernel.hpp>
#include <spillway/optimizer/kernel_tensor.hpp>

namespace spillway::optimizer {
namespace {

// Blocks that no kernel knows: ATen works on so few elements with one thread.
void append_squares(const at::Tensor& flat, std::vector<double>& sums) {
  const auto block = static_cast<std::int64_t>(kSquaresBlockNumel);
  for (std::int64_t begin = 0; begin < flat.numel(); begin += block) {
    const at::Tensor part = flat.narrow(0, begin, std::min(block, flat.numel() - begin)).to(at::kDouble);
    sums.push_back(part.square().sum().item<double>());
  }
}

void append_squares(const GradientRun& run, const offload::Parallel& parallel, std::vector<double>& sums) {
  const std::size_t before = sums.size();
  sums.resize(before + squares_blocks({&run, 1}));
  gradient_squares({&run, 1}, std::span(sums).subspan(before), parallel);
}

}  // namespace

double gradient_norm(std::span<const at::Tensor> parameters) {
  const offload::Parallel parallel;
  std::vector<double> sums;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& gradient = parameters[i].grad();
    if (!gradient.defined()) {
      continue;
    }
    if (gradient.layout() != at::kStrided) {
      throw Error("the gradient of parameter " + std::to_string(i) +
                  " is sparse; clipping needs dense gradients: take to_dense() of it");
    }
    const at::Tensor flat = gradient.contiguous().view(-1);
    const auto type = kernel_element_type(flat.scalar_type());
    if (type && flat.device().is_cpu()) {
      append_squares({flat.const_data_ptr(), static_cast<std::uint64_t>(flat.numel()), *type}, parallel, sums);
    } else {
      append_squares(flat, sums);
    }
  }
  return std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0));
}

double clip_grad_norm_(std::span<const at::Tensor> parameters, double max_norm) {
  if (!(max_norm > 0.0)) {
    throw ConfigError("gradients can't be clipped to a norm of " + std::to_string(max_norm) + "; wanted one above 0");
  }
  const at::NoGradGuard no_grad;
  const double norm = gradient_norm(parameters);
  const double factor = max_norm / (norm + 1e-6);
  if (factor < 1.0 || std::isnan(factor)) {
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

#include <spillway/optimizer/grad_clip.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <spillway/offload/error.hpp>

namespace spillway::optimizer {
namespace {

constexpr std::int64_t kBlockNumel = 16'384;

// Eight sums that do not wait for one another, which a compiler can keep in vector registers.
template <typename Element>
double block_sum_of_squares(const Element* elements, std::int64_t numel) {
  constexpr std::int64_t kSums = 8;
  std::array<double, kSums> sums{};
  std::int64_t i = 0;
  for (; i + kSums <= numel; i += kSums) {
    for (std::int64_t lane = 0; lane < kSums; ++lane) {
      const auto value = static_cast<double>(elements[i + lane]);
      sums[static_cast<std::size_t>(lane)] += value * value;
    }
  }
  for (; i < numel; ++i) {
    const auto value = static_cast<double>(elements[i]);
    sums[static_cast<std::size_t>(i % kSums)] += value * value;
  }
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

double sum_of_squares(const at::Tensor& gradient) {
  if (!gradient.device().is_cpu()) {
    const double norm = at::linalg_vector_norm(gradient, 2, {}, false, at::kDouble).item<double>();
    return norm * norm;
  }
  const at::Tensor flat = gradient.contiguous();
  double sum = 0.0;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, flat.scalar_type(), "gradient_norm", [&] {
    const auto* elements = flat.const_data_ptr<scalar_t>();
    for (std::int64_t begin = 0; begin < flat.numel(); begin += kBlockNumel) {
      sum += block_sum_of_squares(elements + begin, std::min(kBlockNumel, flat.numel() - begin));
    }
  });
  return sum;
}

}  // namespace

double gradient_norm(std::span<const at::Tensor> parameters) {
  double sum = 0.0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& gradient = parameters[i].grad();
    if (!gradient.defined()) {
      continue;
    }
    if (gradient.layout() != at::kStrided) {
      throw Error("the gradient of parameter " + std::to_string(i) +
                  " is sparse; clipping needs dense gradients: take to_dense() of it");
    }
    sum += sum_of_squares(gradient);
  }
  return std::sqrt(sum);
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

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

// Gradients that kernels take, as many at once as follow one another: a call costs more than a small gradient.
class KernelSquares {
 public:
  explicit KernelSquares(std::vector<double>& sums) : sums_(sums) {}
  void add(const at::Tensor& flat, ElementType type) {
    runs_.push_back({flat.const_data_ptr(), static_cast<std::uint64_t>(flat.numel()), type});
    memory_.push_back(flat);
  }
  void append() {
    const std::size_t before = sums_.size();
    sums_.resize(before + squares_blocks(runs_));
    gradient_squares(runs_, std::span(sums_).subspan(before), parallel_);
    runs_.clear();
    memory_.clear();
  }

 private:
  offload::Parallel parallel_;
  std::vector<double>& sums_;
  std::vector<GradientRun> runs_;
  std::vector<at::Tensor> memory_;  // Copies among them.
};

}  // namespace

double gradient_norm(std::span<const at::Tensor> parameters) {
  std::vector<double> sums;
  KernelSquares by_kernel(sums);
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
      by_kernel.add(flat, *type);
    } else {
      by_kernel.append();
      append_squares(flat, sums);
    }
  }
  by_kernel.append();
  return std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0));
}

double clip_factor(double norm, double max_norm) {
  if (!(max_norm > 0.0)) {
    throw ConfigError("gradients can't be clipped to a norm of " + std::to_string(max_norm) + "; wanted one above 0");
  }
  const double factor = max_norm / (norm + 1e-6);
  return factor < 1.0 || std::isnan(factor) ? factor : 1.0;
}

double clip_grad_norm_(std::span<const at::Tensor> parameters, double max_norm) {
  static_cast<void>(clip_factor(0.0, max_norm));  // Refuses before anything is read.
  const at::NoGradGuard no_grad;
  const double norm = gradient_norm(parameters);
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

#include <spillway/app/bench/adam_sides.hpp>

#include <algorithm>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/adamw.h>

#include <spillway/app/bench/log_sinks.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr double kLr = 1e-3;
constexpr double kDecay = 1e-2;
constexpr double kMaxNorm = 1.0;

std::uint64_t state_bytes(optimizer::StateFormat format) { return format == optimizer::StateFormat::kFloat32 ? 4 : 2; }

}  // namespace

std::vector<at::Tensor> bench_weights(const AdamCase& about) {
  std::vector<at::Tensor> weights;
  const auto numel = static_cast<std::int64_t>(about.numel / about.tensors);
  for (std::uint64_t t = 0; t < about.tensors; ++t) {
    const double shift = 1e-6 * static_cast<double>(t);
    weights.push_back(at::linspace(-0.5 + shift, 0.5, numel, at::TensorOptions(at::kFloat)).to(about.type));
    weights.back().requires_grad_();
    weights.back().mutable_grad() =
        at::linspace(1e-3, -2e-3 + shift, numel, at::TensorOptions(at::kFloat)).to(about.type);
  }
  return weights;
}

WrappedAdamSide::WrappedAdamSide(const AdamCase& about) : about_(about), weights_(bench_weights(about)) {
  optimizer::OptimizerConfig config;
  config.state = optimizer::StateDevice::kCpu;
  config.kernels = optimizer::UpdateKernels::kFused;
  config.state_format = about.state;
  config.masters = about.masters;
  config.tiers_options.log = say_nothing;
  optimizer_ = optimizer::wrap(
      std::make_unique<torch::optim::AdamW>(weights_, torch::optim::AdamWOptions(kLr).weight_decay(kDecay)), config);
}

void WrappedAdamSide::step() {
  if (about_.clips) {
    if (!std::isfinite(optimizer_->step_clipped(kMaxNorm))) {
      throw Error("a gradient of the bench is not finite");
    }
  } else {
    optimizer_->step();
  }
}

std::string TorchAdamSide::unavailable(const AdamCase& about) {
  const bool one_type = about.clips || (about.type == at::kFloat) == (about.state == optimizer::StateFormat::kFloat32);
  return one_type ? std::string() : "LibTorch's fused AdamW wants weights, gradients and state of one type";
}

TorchAdamSide::TorchAdamSide(const AdamCase& about) : about_(about), weights_(bench_weights(about)) {
  for (at::Tensor& weight : weights_) {
    const at::Tensor gradient = weight.grad();
    weight = weight.detach();
    masters_.push_back(about.clips ? weight.to(at::kFloat) : weight);
    gradients_.push_back(about.clips ? at::zeros_like(masters_.back()) : gradient);
    exp_avgs_.push_back(at::zeros_like(masters_.back()));
    exp_avg_sqs_.push_back(at::zeros_like(masters_.back()));
    steps_.push_back(at::full({}, 0.0F));
    if (about.clips) {
      weight.mutable_grad() = gradient;
    }
  }
}

void TorchAdamSide::step() {
  const at::NoGradGuard no_grad;
  if (about_.clips) {
    std::vector<at::Tensor> narrow;
    for (const at::Tensor& weight : weights_) {
      narrow.push_back(weight.grad());
    }
    at::_foreach_copy_(gradients_, narrow);
    const double norm = at::stack(at::_foreach_norm(gradients_)).norm().item<double>();
    if (!std::isfinite(norm)) {
      throw Error("a gradient of the bench is not finite");
    }
    at::_foreach_mul_(gradients_, std::min(1.0, kMaxNorm / (norm + 1e-6)));
  }
  for (const at::Tensor& step : steps_) {
    step.data_ptr<float>()[0] += 1.0F;
  }
  at::_fused_adamw_(masters_, gradients_, exp_avgs_, exp_avg_sqs_, {}, steps_, kLr, 0.9, 0.999, kDecay, 1e-8, false,
                    false);
  if (about_.clips) {
    at::_foreach_copy_(weights_, masters_);
  }
}

MemoryStreams bench_streams(const AdamCase& about) {
  const std::uint64_t weight_bytes = about.numel * at::elementSize(about.type);
  std::vector<std::uint64_t> rewritten(2, about.numel * state_bytes(about.state));
  rewritten.push_back(weight_bytes);
  if (about.masters == optimizer::MasterFormat::kFloat32) {
    rewritten.push_back(about.numel * 4);
  }
  return {weight_bytes, rewritten};
}

}  // namespace spillway::app

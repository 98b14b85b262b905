#include <spillway/app/training/optimizer_factory.hpp>

#include <utility>

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

namespace spillway::app {
namespace {

template <typename Options>
Options adam_options(const OptimizerConfig& config) {
  return Options(config.lr)
      .betas({config.betas[0], config.betas[1]})
      .eps(config.eps)
      .weight_decay(config.weight_decay)
      .amsgrad(config.amsgrad);
}

std::unique_ptr<torch::optim::Optimizer> make_plain(const OptimizerConfig& config, std::vector<at::Tensor> parameters) {
  if (config.kind == OptimizerKind::kSgd) {
    return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(config.lr)
                                                                          .momentum(config.momentum)
                                                                          .dampening(config.dampening)
                                                                          .weight_decay(config.weight_decay)
                                                                          .nesterov(config.nesterov));
  }
  if (config.decoupled_decay()) {
    return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                                 adam_options<torch::optim::AdamWOptions>(config));
  }
  return std::make_unique<torch::optim::Adam>(std::move(parameters), adam_options<torch::optim::AdamOptions>(config));
}

optimizer::StateDevice state_device(OffloadDevice device) {
  switch (device) {
    case OffloadDevice::kNone:
      return optimizer::StateDevice::kNone;
    case OffloadDevice::kCpu:
      return optimizer::StateDevice::kCpu;
    case OffloadDevice::kNvme:
      return optimizer::StateDevice::kNvme;
  }
  return optimizer::StateDevice::kNone;
}

optimizer::GradientDevice gradient_device(OffloadDevice device) {
  switch (device) {
    case OffloadDevice::kNone:
      return optimizer::GradientDevice::kInPlace;
    case OffloadDevice::kCpu:
      return optimizer::GradientDevice::kCpu;
    case OffloadDevice::kNvme:
      return optimizer::GradientDevice::kNvme;
  }
  return optimizer::GradientDevice::kInPlace;
}

}  // namespace

std::unique_ptr<optimizer::Optimizer> make_optimizer(const Config& config, std::vector<at::Tensor> parameters,
                                                     std::shared_ptr<offload::Tiers> tiers) {
  std::uint64_t numel = 0;
  for (const at::Tensor& parameter : parameters) numel += static_cast<std::uint64_t>(parameter.numel());
  optimizer::OptimizerConfig wrapping;
  wrapping.state = state_device(config.zero.offload_optimizer.device);
  // DeepSpeed's default means "all at once", which would need staging buffers of that size.
  wrapping.sub_group_numel = config.zero.sub_group_size < numel ? config.zero.sub_group_size : 0;
  wrapping.gradients = gradient_device(config.offload.gradients);
  if (wrapping.sub_group_numel != 0) {
    wrapping.bucket_bytes = wrapping.sub_group_numel * sizeof(float);
  }
  wrapping.buffer_count = static_cast<unsigned>(config.zero.offload_optimizer.buffer_count);
  wrapping.tiers = std::move(tiers);
  return optimizer::wrap(make_plain(config.optimizer, std::move(parameters)), std::move(wrapping));
}

}  // namespace spillway::app

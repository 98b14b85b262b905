#include <spillway/app/training/optimizer_factory.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <utility>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>
#include <spillway/optimizer/lars.hpp>

namespace spillway::app {
namespace {

/// An optimizer of LibTorch's with its two groups.
template <typename Made, typename Options>
std::unique_ptr<torch::optim::Optimizer> make_groups(OptimizedParameters parameters, const Options& options) {
  std::vector<torch::optim::OptimizerParamGroup> groups{
      torch::optim::OptimizerParamGroup(std::move(parameters.decayed))};
  if (!parameters.undecayed.empty()) {
    Options undecayed = options;
    undecayed.weight_decay(0.0);
    groups.emplace_back(std::move(parameters.undecayed), std::make_unique<Options>(undecayed));
  }
  return std::make_unique<Made>(std::move(groups), options);
}

template <typename Options>
Options adam_options(const OptimizerConfig& config) {
  return Options(config.lr)
      .betas({config.betas[0], config.betas[1]})
      .eps(config.eps)
      .weight_decay(config.weight_decay)
      .amsgrad(config.amsgrad);
}

torch::optim::SGDOptions sgd_options(const OptimizerConfig& config) {
  return torch::optim::SGDOptions(config.lr)
      .momentum(config.momentum)
      .dampening(config.dampening)
      .weight_decay(config.weight_decay)
      .nesterov(config.nesterov);
}

torch::optim::AdagradOptions adagrad_options(const OptimizerConfig& config) {
  return torch::optim::AdagradOptions(config.lr)
      .lr_decay(config.lr_decay)
      .weight_decay(config.weight_decay)
      .initial_accumulator_value(config.initial_accumulator_value)
      .eps(config.eps);
}

torch::optim::RMSpropOptions rmsprop_options(const OptimizerConfig& config) {
  return torch::optim::RMSpropOptions(config.lr)
      .alpha(config.alpha)
      .eps(config.eps)
      .weight_decay(config.weight_decay)
      .momentum(config.momentum)
      .centered(config.centered);
}

/// Groups like those of LibTorch's; what is of one dimension or none is left alone by the optimizer itself.
std::unique_ptr<torch::optim::Optimizer> make_lars(const OptimizerConfig& config, OptimizedParameters parameters) {
  optimizer::LarsOptions options(config.lr);
  options.momentum = config.momentum;
  options.weight_decay = config.weight_decay;
  options.trust_coefficient = config.trust_coefficient;
  options.nesterov = config.nesterov;
  optimizer::LarsOptions undecayed = options;
  undecayed.weight_decay = 0.0;
  std::vector<torch::optim::OptimizerParamGroup> groups{
      torch::optim::OptimizerParamGroup(std::move(parameters.decayed))};
  if (!parameters.undecayed.empty()) {
    groups.emplace_back(std::move(parameters.undecayed), std::make_unique<optimizer::LarsOptions>(undecayed));
  }
  return std::make_unique<optimizer::Lars>(groups, options);
}

std::unique_ptr<torch::optim::Optimizer> make_plain(const OptimizerConfig& config, OptimizedParameters parameters) {
  using namespace torch::optim;
  switch (config.kind) {
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      break;
    case OptimizerKind::kSgd:
      return make_groups<SGD>(std::move(parameters), sgd_options(config));
    case OptimizerKind::kAdagrad:
      return make_groups<Adagrad>(std::move(parameters), adagrad_options(config));
    case OptimizerKind::kRmsprop:
      return make_groups<RMSprop>(std::move(parameters), rmsprop_options(config));
    case OptimizerKind::kLars:
      return make_lars(config, std::move(parameters));
  }
  return config.decoupled_decay() ? make_groups<AdamW>(std::move(parameters), adam_options<AdamWOptions>(config))
                                  : make_groups<Adam>(std::move(parameters), adam_options<AdamOptions>(config));
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

optimizer::StateFormat state_format(StateDtype dtype) {
  switch (dtype) {
    case StateDtype::kFp32:
      return optimizer::StateFormat::kFloat32;
    case StateDtype::kBf16:
      return optimizer::StateFormat::kBFloat16;
    case StateDtype::kInt8:
      return optimizer::StateFormat::kBlockwise8;
  }
  return optimizer::StateFormat::kFloat32;
}

/// What kernels keep lies in blocks, wherever the configuration has the state: so that a place changes no bit.
void take_kernels(optimizer::OptimizerConfig& wrapping, const Config& config) {
  wrapping.kernels = optimizer::UpdateKernels::kFused;
  wrapping.state_format = state_format(config.state_dtype());
  if (wrapping.state == optimizer::StateDevice::kNone) wrapping.state = optimizer::StateDevice::kCpu;
}

/// Sums of gradients are float32 likewise.
void keep_masters(optimizer::OptimizerConfig& wrapping, const Config& config) {
  wrapping.masters = optimizer::MasterFormat::kRemainder;
  if (wrapping.gradients == optimizer::GradientDevice::kInPlace) {
    wrapping.gradients = optimizer::GradientDevice::kCpu;
  }
  // Where nothing is added, sums are the gradients themselves.
  wrapping.narrow_gradients = config.gradient_accumulation_steps == 1;
}

/// Refuses a placement that offloads more than the configuration wants.
void check_ratio(const optimizer::Optimizer& optimizer, double ratio) {
  const optimizer::StatePlacement placed = optimizer.placement();
  const double all_bytes = static_cast<double>(placed.resident_bytes + placed.disk_bytes);
  if (static_cast<double>(placed.disk_bytes) > ratio * all_bytes) {
    throw BudgetExceeded("zero_optimization.offload_optimizer.ratio: " + std::to_string(ratio) +
                         " of the optimizer's state may go to NVMe, but offload.host_bytes leaves room for only " +
                         offload::format_bytes(placed.resident_bytes) + " of it in host memory, and " +
                         offload::format_bytes(placed.disk_bytes) + " would go; raise either");
  }
}

/// The options of a group as those of one kind of optimizer, if that they are, with other betas.
template <typename Options>
void set_betas(torch::optim::OptimizerOptions& options, const std::array<double, 2>& betas) {
  if (auto* const adam = dynamic_cast<Options*>(&options)) adam->betas(std::make_tuple(betas[0], betas[1]));
}

}  // namespace

std::uint64_t state_tensor_count(const OptimizerConfig& config) noexcept {
  const std::uint64_t momentum = config.momentum != 0.0 ? 1 : 0;
  switch (config.kind) {
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      break;
    case OptimizerKind::kSgd:
    case OptimizerKind::kLars:
      return momentum;
    case OptimizerKind::kAdagrad:
      return 1;
    case OptimizerKind::kRmsprop:
      return 1 + momentum + (config.centered ? 1 : 0);
  }
  return config.amsgrad ? 3 : 2;
}

std::unique_ptr<optimizer::Optimizer> make_optimizer(const Config& config, OptimizedParameters parameters,
                                                     std::shared_ptr<offload::Tiers> tiers,
                                                     const GradientGroups& groups) {
  std::uint64_t numel = 0;
  for (const std::vector<at::Tensor>& group : {parameters.decayed, parameters.undecayed}) {
    for (const at::Tensor& parameter : group) numel += static_cast<std::uint64_t>(parameter.numel());
  }
  optimizer::OptimizerConfig wrapping;
  wrapping.state = state_device(config.zero.offload_optimizer.device);
  // DeepSpeed's default means "all at once", which would need staging buffers of that size.
  wrapping.sub_group_numel = config.zero.sub_group_size < numel ? config.zero.sub_group_size : 0;
  wrapping.gradients = gradient_device(config.offload.gradients);
  if (groups.exchange != nullptr && wrapping.gradients == optimizer::GradientDevice::kInPlace) {
    wrapping.gradients = optimizer::GradientDevice::kCpu;
  }
  wrapping.gradient_group = groups.exchange;
  wrapping.agreement_group = groups.agreement;
  const std::uint64_t element_bytes = config.has_16_bit_parameters() ? 2 : sizeof(float);  // Of nearly all of them.
  if (wrapping.sub_group_numel != 0) {
    wrapping.bucket_bytes = wrapping.sub_group_numel * element_bytes;
  }
  // DeepSpeed's default for buckets would likewise need buffers of 2 GB: it is a limit, and ours lies below it.
  wrapping.bucket_bytes =
      std::min(wrapping.bucket_bytes / element_bytes, config.zero.reduce_bucket_size) * element_bytes;
  if (config.has_fused_update()) take_kernels(wrapping, config);
  if (config.has_16_bit_parameters()) keep_masters(wrapping, config);
  wrapping.buffer_count = static_cast<unsigned>(config.zero.offload_optimizer.buffer_count);
  wrapping.tiers = std::move(tiers);
  auto made = optimizer::wrap(make_plain(config.optimizer, std::move(parameters)), std::move(wrapping));
  if (config.zero.offload_optimizer.device == OffloadDevice::kNvme) {
    check_ratio(*made, config.zero.offload_optimizer.ratio);
  }
  return made;
}

void set_rate(optimizer::Optimizer& optimizer, const ScheduledRate& rate) {
  for (torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    group.options().set_lr(rate.lr);
    if (rate.betas) {
      set_betas<torch::optim::AdamOptions>(group.options(), *rate.betas);
      set_betas<torch::optim::AdamWOptions>(group.options(), *rate.betas);
    }
  }
}

}  // namespace spillway::app

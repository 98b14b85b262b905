#include <spillway/optimizer/sharded_optimizer.hpp>

#include <exception>
#include <typeinfo>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <c10/util/Type.h>

#include <spillway/offload/error.hpp>
#include <spillway/optimizer/fused_update.hpp>
#include <spillway/optimizer/grad_clip.hpp>
#include <spillway/optimizer/kernel_tensor.hpp>
#include <spillway/optimizer/rank_agreement.hpp>
#include <spillway/optimizer/state_fields.hpp>
#include <spillway/optimizer/taken_gradients.hpp>

namespace spillway::optimizer {
namespace {

const StateFields& fields_of(const torch::optim::Optimizer& optimizer, const StateFields* own) {
  const StateFields* fields = own != nullptr ? own : find_state_fields(optimizer);
  if (fields == nullptr) {
    throw ConfigError("wrap: the state of " + c10::demangle(typeid(optimizer).name()) +
                      " is not known to Spillway; it moves that of " + known_optimizers() +
                      ". Take one of these, describe an optimizer of your own in state_fields, or leave the state in "
                      "place with StateDevice::kNone");
  }
  return *fields;
}

// State that somebody describes himself is not the kernels'.
bool has_kernels(const torch::optim::Optimizer& optimizer, const StateFields* own) {
  return own == nullptr && find_fused_update(optimizer) != nullptr;
}

// Precision that was asked for and can't be had is no matter for a line in the log.
void check_precision(const torch::optim::Optimizer& optimizer, const OptimizerConfig& config) {
  if (config.state_format == StateFormat::kFloat32 && config.masters == MasterFormat::kNone) {
    return;
  }
  if (config.kernels != UpdateKernels::kFused || !has_kernels(optimizer, config.state_fields.get())) {
    throw ConfigError(
        "state_format and masters are the fused kernels': set kernels = UpdateKernels::kFused, for Adam, "
        "AdamW, SGD or Adagrad of LibTorch");
  }
  if (config.state_format == StateFormat::kBlockwise8 && !find_fused_update(optimizer)->takes_codes()) {
    throw ConfigError("state in 8 bits is for Adam and AdamW; take StateFormat::kBFloat16 or kFloat32 for " +
                      c10::demangle(typeid(optimizer).name()));
  }
}

std::unique_ptr<torch::optim::Optimizer> checked(std::unique_ptr<torch::optim::Optimizer> optimizer,
                                                 const OptimizerConfig& config) {
  if (optimizer == nullptr) {
    throw ConfigError("wrap: the optimizer is null");
  }
  const bool takes_gradients = config.gradients != GradientDevice::kInPlace;
  if (!takes_gradients && (config.gradient_group != nullptr || config.agreement_group != nullptr)) {
    throw ConfigError(
        "groups of ranks are for gradients that are taken: set gradients to kCpu or kNvme, or average "
        "them in place with average_gradients()");
  }
  if (config.state != StateDevice::kNone || takes_gradients) {
    const StateFields& fields = fields_of(*optimizer, config.state_fields.get());
    if (takes_gradients && fields.whole_model()) {
      throw ConfigError(std::string(fields.optimizer()) +
                        " updates all parameters together, which gradients that are taken do not allow: leave them in "
                        "place");
    }
    if (config.buffer_count < 2) {
      throw ConfigError("buffer_count is " + std::to_string(config.buffer_count) +
                        "; reading ahead takes at least 2 staging buffers");
    }
  }
  if (config.state == StateDevice::kNone && config.kernels == UpdateKernels::kFused) {
    throw ConfigError("fused kernels update state that lies in blocks, which StateDevice::kNone has not: take kCpu");
  }
  check_precision(*optimizer, config);
  return optimizer;
}

std::shared_ptr<offload::Tiers> tiers_of(const OptimizerConfig& config) {
  if (config.state == StateDevice::kNone && config.gradients == GradientDevice::kInPlace) {
    return nullptr;
  }
  const bool on_disk = config.state == StateDevice::kNvme || config.gradients == GradientDevice::kNvme;
  std::shared_ptr<offload::Tiers> tiers = config.tiers;
  if (tiers == nullptr) {
    offload::TiersOptions options = config.tiers_options;
    if (!config.nvme_path.empty()) {
      options.nvme_path = config.nvme_path;
    }
    if (!on_disk) {
      options.nvme_path.clear();
    }
    tiers = std::make_shared<offload::Tiers>(std::move(options));
  }
  if (config.state == StateDevice::kNvme && !tiers->has_disk()) {
    throw ConfigError("the optimizer state is to go to NVMe, but there is no folder for it: set nvme_path");
  }
  if (config.gradients == GradientDevice::kNvme && !tiers->has_disk()) {
    throw ConfigError("gradients are to go to NVMe, but there is no folder for them: set nvme_path");
  }
  return tiers;
}

// Ranks that wait for this one in wrap() learn why it does not come.
std::shared_ptr<offload::Tiers> agreed_tiers(const OptimizerConfig& config) {
  std::shared_ptr<offload::Tiers> tiers;
  const std::exception_ptr failure = failure_of([&] { tiers = tiers_of(config); });
  RankAgreement(config.agreement_group).meet(Purpose::kWrap, {}, failure);
  return tiers;
}

}  // namespace

Optimizer::Optimizer(std::unique_ptr<torch::optim::Optimizer> wrapped, OptimizerConfig config)
    : torch::optim::Optimizer(std::vector<torch::optim::OptimizerParamGroup>{}, nullptr),
      wrapped_(checked(std::move(wrapped), config)),
      tiers_(agreed_tiers(config)),
      in_memory_(config.state == StateDevice::kNone),
      own_fields_(config.state_fields) {
  defaults_ = wrapped_->defaults().clone();
  param_groups_ = std::vector<torch::optim::OptimizerParamGroup>(wrapped_->param_groups());
  if (config.gradients != GradientDevice::kInPlace) {
    TakenGradientsOptions options;
    options.optimizer = c10::demangle(typeid(*wrapped_).name());
    options.exchange = config.gradient_group;
    options.agreement = config.agreement_group;
    options.weights = config.shard_weights;
    options.bucket_bytes = config.bucket_bytes;
    options.divisible = divisible(config);
    options.sums = {config.gradients == GradientDevice::kNvme, config.buffer_count,
                    config.narrow_gradients && config.gradient_group == nullptr};
    gradients_ = std::make_unique<TakenGradients>(param_groups_, tiers_, std::move(options));
    gradients_->make_room([&] { make_state(config); });
    tiers_->log(
        "gradients are taken while backward runs: .grad is undefined afterwards, clip_grad_norm_ of the wrapped "
        "optimizer takes the place of the free function, and gradients that no step is to take are dropped by its "
        "zero_grad");
  } else if (config.state != StateDevice::kNone) {
    make_state(config);
  }
}

// LibTorch's own step computes the last elements of a 16-bit tensor, and of each thread's share of it, in another way
// than the rest: such a tensor stays whole.
std::function<bool(const at::Tensor&)> Optimizer::divisible(const OptimizerConfig& config) const {
  if (config.shard_granularity == ShardGranularity::kTensor ||
      !fields_of(*wrapped_, own_fields_.get()).element_wise()) {
    return {};
  }
  const bool fused = config.kernels == UpdateKernels::kFused && has_kernels(*wrapped_, own_fields_.get());
  return [fused](const at::Tensor& parameter) {
    return parameter.is_non_overlapping_and_dense() &&
           (parameter.element_size() >= 4 || (fused && kernel_refusal(parameter).empty()));
  };
}

void Optimizer::make_state(const OptimizerConfig& config) {
  StreamedStateOptions options;
  options.disk_allowed = config.state == StateDevice::kNvme;
  options.host_bytes = config.host_bytes;
  options.sub_group_numel = config.sub_group_numel;
  options.ring_slots = config.buffer_count;
  options.form = {config.kernels == UpdateKernels::kFused && has_kernels(*wrapped_, own_fields_.get()),
                  config.state_format, config.masters};
  const bool fused = options.form.fused;
  if (gradients_ != nullptr) {
    options.shard_of = [this](const at::Tensor& parameter) { return gradients_->shard_of(parameter); };
    options.has_gradient = [this](const at::Tensor& parameter) { return gradients_->has_gradient(parameter); };
  }
  const StateFields& all_fields = fields_of(*wrapped_, own_fields_.get());
  const StateFields& fields = config.state == StateDevice::kNone ? unmoved_fields() : all_fields;
  options.kept_fields = &all_fields;
  state_ = std::make_unique<StreamedState>(*wrapped_, fields, tiers_, std::move(options));
  state_->drop_foreign(param_groups_);
  state_->follow(param_groups_);
  if (fused) {
    tiers_->log(state_->describe_update());
  } else if (config.kernels == UpdateKernels::kFused) {
    tiers_->log("there are no fused kernels for " + c10::demangle(typeid(*wrapped_).name()) +
                ": its own step updates all parameters");
  }
}

Optimizer::~Optimizer() = default;

void Optimizer::refuse_if_poisoned() const {
  if (!poison_.empty()) {
    throw Error(
        "the optimizer is unusable since a step failed half-way and weights may be part-updated: make model "
        "and optimizer anew from a checkpoint. The failure was: " +
        poison_);
  }
}

void Optimizer::poison_on_failure(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& failure) {
    poison_ = failure.what();
    throw;
  } catch (...) {
    poison_ = "an exception of unknown type";
    throw;
  }
}

// Groups may have been added, and options changed, through the base class, whose functions are not virtual.
void Optimizer::follow_groups() {
  auto& theirs = wrapped_->param_groups();
  while (theirs.size() > param_groups_.size()) {
    theirs.pop_back();
  }
  while (theirs.size() < param_groups_.size()) {
    wrapped_->add_param_group(param_groups_[theirs.size()]);
  }
  for (std::size_t g = 0; g < theirs.size(); ++g) {
    theirs[g].set_options(param_groups_[g].options().clone());
  }
  if (state_ != nullptr) {
    state_->follow(param_groups_);
  } else {
    give_wrapped_all_parameters();
  }
}

void Optimizer::give_wrapped_all_parameters() const {
  auto& theirs = wrapped_->param_groups();
  for (std::size_t g = 0; g < theirs.size(); ++g) {
    theirs[g].params() = param_groups_[g].params();
  }
}

at::Tensor Optimizer::step(LossClosure closure) {
  refuse_if_poisoned();
  if (gradients_ != nullptr) {
    return step_taken(std::move(closure));
  }
  if (state_ == nullptr) {
    follow_groups();
    return wrapped_->step(std::move(closure));
  }
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  step_scaled({});
  return loss;
}

at::Tensor Optimizer::step_taken(LossClosure closure) {
  const at::NoGradGuard no_grad;
  at::Tensor loss;
  poison_if_fatal([&] {
    gradients_->synchronise(
        Purpose::kStep, param_groups_,
        [&] {
          if (closure) {
            const at::AutoGradMode enable_grad(true);
            loss = closure();
          }
        },
        [&] {
          follow_groups();
          state_->check(param_groups_);
        });
    gradients_->step(*state_);
  });
  return loss;
}

void Optimizer::synchronise(Purpose purpose) {
  refuse_if_poisoned();
  poison_if_fatal([&] { gradients_->synchronise(purpose, param_groups_); });
}

void Optimizer::poison_if_fatal(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& failure) {
    if (gradients_->fatal()) {
      poison_ = failure.what();
    }
    throw;
  }
}

void Optimizer::zero_grad(bool set_to_none) {
  torch::optim::Optimizer::zero_grad(set_to_none || gradients_ != nullptr);
  if (gradients_ != nullptr && poison_.empty()) {
    synchronise(Purpose::kZeroGrad);
    gradients_->drop(/*keep_zeros=*/!set_to_none);
  }
  prefetch();
}

bool Optimizer::unscale_gradients(double inverse_scale) {
  synchronise(Purpose::kUnscale);
  bool found = false;
  poison_if_fatal([&] { found = gradients_->unscale(inverse_scale); });
  return found;
}

void Optimizer::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  refuse_if_poisoned();
  wrapped_->add_param_group(group);  // Refuses what LibTorch refuses, with its own view of which tensors have state.
  try {
    torch::optim::Optimizer::add_param_group(group);
    try {
      if (gradients_ != nullptr) {
        poison_if_fatal(
            [&] { gradients_->synchronise(Purpose::kAddGroup, param_groups_, {}, [&] { follow_groups(); }); });
      } else {
        follow_groups();
      }
    } catch (...) {
      param_groups_.pop_back();
      throw;
    }
  } catch (...) {
    wrapped_->param_groups().pop_back();
    throw;
  }
}

std::vector<at::Tensor> Optimizer::all_parameters() const {
  std::vector<at::Tensor> parameters;
  std::unordered_set<const c10::TensorImpl*> seen;  // A tied parameter has one gradient.
  for (const auto& group : param_groups_) {
    for (const at::Tensor& parameter : group.params()) {
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) {
        parameters.push_back(parameter);
      }
    }
  }
  return parameters;
}

double Optimizer::clip_grad_norm_(double max_norm) {
  if (gradients_ == nullptr) {
    return clip_in_place(max_norm);
  }
  synchronise(Purpose::kClip);
  double norm = 0.0;
  poison_if_fatal([&] { norm = gradients_->clip_norm(max_norm); });
  return norm;
}

void Optimizer::clip_grad_value_(double limit) {
  if (gradients_ == nullptr) {
    optimizer::clip_grad_value_(all_parameters(), limit);
    return;
  }
  synchronise(Purpose::kClip);
  gradients_->clip_value(limit);
}

void Optimizer::prefetch() {
  if (state_ != nullptr && poison_.empty()) {
    poison_on_failure([&] { state_->prefetch(); });
  }
}

void Optimizer::flush() {
  if (state_ != nullptr) {
    refuse_if_poisoned();
    poison_on_failure([&] { state_->flush(); });
  }
}

StepBytes Optimizer::next_step_bytes() const { return state_ == nullptr ? StepBytes{} : state_->next_step_bytes(); }

StepBytes Optimizer::steady_step_bytes() const { return state_ == nullptr ? StepBytes{} : state_->steady_step_bytes(); }

StatePlacement Optimizer::placement() const { return state_ == nullptr ? StatePlacement{} : state_->placement(); }

GradientPlacement Optimizer::gradient_placement() const {
  return gradients_ == nullptr
             ? GradientPlacement{}
             : GradientPlacement{gradients_->owned_numel(), gradients_->host_bytes(), gradients_->disk_bytes()};
}

std::unique_ptr<Optimizer> wrap(std::unique_ptr<torch::optim::Optimizer> optimizer, OptimizerConfig config) {
  return std::make_unique<Optimizer>(std::move(optimizer), std::move(config));
}

}  // namespace spillway::optimizer

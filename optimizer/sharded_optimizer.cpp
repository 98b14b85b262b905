#include <spillway/optimizer/sharded_optimizer.hpp>

#include <exception>
#include <typeinfo>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Type.h>
#include <torch/serialize/archive.h>

#include <spillway/offload/error.hpp>
#include <spillway/optimizer/fused_update.hpp>
#include <spillway/optimizer/grad_clip.hpp>
#include <spillway/optimizer/scaled_gradients.hpp>
#include <spillway/optimizer/state_fields.hpp>

namespace spillway::optimizer {
namespace {

// In archives, beside LibTorch's "state" and "param_groups".
constexpr const char* kMastersKey = "masters";
constexpr const char* kCodesKey = "codes";

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
  if (config.state != StateDevice::kNone) {
    fields_of(*optimizer, config.state_fields.get());
    if (config.buffer_count < 2) {
      throw ConfigError("buffer_count is " + std::to_string(config.buffer_count) +
                        "; reading ahead takes at least 2 staging buffers");
    }
  } else if (config.kernels == UpdateKernels::kFused) {
    throw ConfigError("fused kernels update state that lies in blocks, which StateDevice::kNone has not: take kCpu");
  }
  check_precision(*optimizer, config);
  return optimizer;
}

std::shared_ptr<offload::Tiers> tiers_of(const OptimizerConfig& config) {
  if (config.state == StateDevice::kNone) {
    return nullptr;
  }
  std::shared_ptr<offload::Tiers> tiers = config.tiers;
  if (tiers == nullptr) {
    offload::TiersOptions options = config.tiers_options;
    if (!config.nvme_path.empty()) {
      options.nvme_path = config.nvme_path;
    }
    if (config.state == StateDevice::kCpu) {
      options.nvme_path.clear();
    }
    tiers = std::make_shared<offload::Tiers>(std::move(options));
  }
  if (config.state == StateDevice::kNvme && !tiers->has_disk()) {
    throw ConfigError("the optimizer state is to go to NVMe, but there is no folder for it: set nvme_path");
  }
  return tiers;
}

}  // namespace

Optimizer::Optimizer(std::unique_ptr<torch::optim::Optimizer> wrapped, OptimizerConfig config)
    : torch::optim::Optimizer(std::vector<torch::optim::OptimizerParamGroup>{}, nullptr),
      wrapped_(checked(std::move(wrapped), config)),
      tiers_(tiers_of(config)),
      own_fields_(config.state_fields) {
  defaults_ = wrapped_->defaults().clone();
  param_groups_ = std::vector<torch::optim::OptimizerParamGroup>(wrapped_->param_groups());
  if (config.state != StateDevice::kNone) {
    StreamedStateOptions options;
    options.disk_allowed = config.state == StateDevice::kNvme;
    options.host_bytes = config.host_bytes;
    options.sub_group_numel = config.sub_group_numel;
    options.ring_slots = config.buffer_count;
    options.form.fused = config.kernels == UpdateKernels::kFused && has_kernels(*wrapped_, own_fields_.get());
    options.form.state = config.state_format;
    options.form.masters = config.masters;
    state_ = std::make_unique<StreamedState>(*wrapped_, fields_of(*wrapped_, own_fields_.get()), tiers_, options);
    state_->follow(param_groups_);
    if (options.form.fused) {
      tiers_->log(state_->describe_update());
    } else if (config.kernels == UpdateKernels::kFused) {
      tiers_->log("there are no fused kernels for " + c10::demangle(typeid(*wrapped_).name()) +
                  ": its own step updates all parameters");
    }
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

void Optimizer::step_scaled(const GradientScale& scale) {
  refuse_if_poisoned();
  const at::NoGradGuard no_grad;
  follow_groups();
  if (state_ == nullptr) {
    std::vector<at::Tensor> parameters = all_parameters();
    std::erase_if(parameters, [](const at::Tensor& parameter) { return !parameter.grad().defined(); });
    const ScaledGradients scaled(parameters, scale);
    wrapped_->step();
    return;
  }
  state_->check(param_groups_);
  poison_on_failure([&] { state_->step(scale); });
}

double Optimizer::step_clipped(double max_norm) {
  static_cast<void>(clip_factor(0.0, max_norm));  // Refuses before anything is read.
  const at::NoGradGuard no_grad;
  const double norm = gradient_norm(all_parameters());
  step_scaled({.factor = clip_factor(norm, max_norm)});
  return norm;
}

void Optimizer::zero_grad(bool set_to_none) {
  torch::optim::Optimizer::zero_grad(set_to_none);
  prefetch();
}

void Optimizer::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  refuse_if_poisoned();
  wrapped_->add_param_group(group);  // Refuses what LibTorch refuses, with its own view of which tensors have state.
  try {
    torch::optim::Optimizer::add_param_group(group);
    try {
      follow_groups();
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

double Optimizer::clip_grad_norm_(double max_norm) const {
  return optimizer::clip_grad_norm_(all_parameters(), max_norm);
}

void Optimizer::clip_grad_value_(double limit) const { optimizer::clip_grad_value_(all_parameters(), limit); }

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

void Optimizer::save(torch::serialize::OutputArchive& archive) const {
  refuse_if_poisoned();
  give_wrapped_all_parameters();
  for (std::size_t g = 0; g < wrapped_->param_groups().size();
       ++g) {  // They may have been changed since the last step.
    wrapped_->param_groups()[g].set_options(param_groups_[g].options().clone());
  }
  if (state_ == nullptr) {
    wrapped_->save(archive);
    return;
  }
  struct Copies {
    StreamedState& state;
    StreamedState::Extras extras;
    explicit Copies(StreamedState& from) : state(from), extras(from.copy_out()) {}
    ~Copies() { state.clear(); }
  };
  const at::NoGradGuard no_grad;
  const Copies copies(*state_);
  wrapped_->save(archive);
  write_extras(archive, kMastersKey, copies.extras, &StreamedState::Extra::master);
  write_extras(archive, kCodesKey, copies.extras, &StreamedState::Extra::codes);
}

// An archive without any is the plain optimizer's.
void Optimizer::write_extras(torch::serialize::OutputArchive& archive, const char* name,
                             const StreamedState::Extras& extras, at::Tensor StreamedState::Extra::*member) const {
  torch::serialize::OutputArchive tensors(archive.compilation_unit());
  bool any = false;
  for_each_parameter([&](const std::string& key, const at::Tensor& parameter) {
    const auto found = extras.find(parameter.unsafeGetTensorImpl());
    if (found != extras.end() && (found->second.*member).defined()) {
      tensors.write(key, found->second.*member, /*is_buffer=*/true);
      any = true;
    }
  });
  if (any) {
    archive.write(name, tensors);
  }
}

// Checked before anything changes.
StreamedState::Extras Optimizer::read_extras(torch::serialize::InputArchive& archive) const {
  StreamedState::Extras extras;
  torch::serialize::InputArchive masters;
  torch::serialize::InputArchive codes;
  const bool has_masters = archive.try_read(kMastersKey, masters);
  const bool has_codes = archive.try_read(kCodesKey, codes);
  for_each_parameter([&](const std::string& key, const at::Tensor& parameter) {
    StreamedState::Extra extra;
    if (has_masters && masters.try_read(key, extra.master, /*is_buffer=*/true) &&
        (extra.master.sizes() != parameter.sizes() || extra.master.scalar_type() != at::kFloat)) {
      throw Error("the archive's master of parameter " + key + " (group/index) is not float32 of the parameter's size");
    }
    const bool coded = has_codes && codes.try_read(key, extra.codes, /*is_buffer=*/true);
    if (coded || extra.master.defined()) {
      extras[parameter.unsafeGetTensorImpl()] = extra;
    }
  });
  return extras;
}

void Optimizer::for_each_parameter(const std::function<void(const std::string&, const at::Tensor&)>& work) const {
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i) {
      work(std::to_string(g) + "/" + std::to_string(i), param_groups_[g].params()[i]);
    }
  }
}

// LibTorch's load takes the state of a parameter that is listed twice away again at its second mention: something else
// stands there meanwhile.
void Optimizer::load_wrapped(torch::serialize::InputArchive& archive) {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<at::Tensor> in_their_place;
  for (auto& group : wrapped_->param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      if (!seen.insert(parameter.unsafeGetTensorImpl()).second) {
        parameter = in_their_place.emplace_back(at::empty({0}));
      }
    }
  }
  wrapped_->load(archive);
  for (const at::Tensor& other : in_their_place) {
    wrapped_->state().erase(other.unsafeGetTensorImpl());
  }
  give_wrapped_all_parameters();
}

void Optimizer::load(torch::serialize::InputArchive& archive) {
  refuse_if_poisoned();
  follow_groups();
  give_wrapped_all_parameters();
  const StreamedState::Extras extras = read_extras(archive);
  load_wrapped(archive);
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    param_groups_[g].set_options(wrapped_->param_groups()[g].options().clone());
  }
  if (state_ != nullptr) {
    const at::NoGradGuard no_grad;
    poison_on_failure([&] { state_->take_over(extras); });
  }
}

std::unique_ptr<Optimizer> wrap(std::unique_ptr<torch::optim::Optimizer> optimizer, OptimizerConfig config) {
  return std::make_unique<Optimizer>(std::move(optimizer), std::move(config));
}

}  // namespace spillway::optimizer

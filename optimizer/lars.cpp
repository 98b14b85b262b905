#include <spillway/optimizer/lars.hpp>

#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include <spillway/offload/error.hpp>

namespace spillway::optimizer {
namespace {

double length(const at::Tensor& tensor) {
  return at::linalg_vector_norm(tensor, 2, {}, /*keepdim=*/false, at::kDouble).item<double>();
}

void check(const LarsOptions& options) {
  const auto refuse = [](const char* name, double value) {
    if (!(value >= 0.0)) {
      throw ConfigError("LARS: " + std::string(name) + " is " + std::to_string(value) + ", wanted 0 or more");
    }
  };
  refuse("lr", options.lr);
  refuse("momentum", options.momentum);
  refuse("weight_decay", options.weight_decay);
  refuse("trust_coefficient", options.trust_coefficient);
  if (options.nesterov && options.momentum == 0.0) throw ConfigError("LARS: nesterov needs momentum above 0");
}

double number(torch::serialize::InputArchive& archive, const char* name) {
  c10::IValue value;
  archive.read(name, value);
  return value.toDouble();
}

/// The rate of one parameter. @param gradient  Decayed.
double adapted_rate(const LarsOptions& options, const at::Tensor& parameter, const at::Tensor& gradient) {
  const double of_parameter = length(parameter);
  const double of_gradient = length(gradient);
  if (of_parameter == 0.0 || of_gradient == 0.0) return options.lr;
  return options.lr * options.trust_coefficient * of_parameter / of_gradient;
}

}  // namespace

void LarsOptions::serialize(torch::serialize::InputArchive& archive) {
  lr = number(archive, "lr");
  momentum = number(archive, "momentum");
  weight_decay = number(archive, "weight_decay");
  trust_coefficient = number(archive, "trust_coefficient");
  c10::IValue value;
  archive.read("nesterov", value);
  nesterov = value.toBool();
}

void LarsOptions::serialize(torch::serialize::OutputArchive& archive) const {
  archive.write("lr", c10::IValue(lr));
  archive.write("momentum", c10::IValue(momentum));
  archive.write("weight_decay", c10::IValue(weight_decay));
  archive.write("trust_coefficient", c10::IValue(trust_coefficient));
  archive.write("nesterov", c10::IValue(nesterov));
}

void LarsParamState::serialize(torch::serialize::InputArchive& archive) {
  c10::IValue value;
  if (archive.try_read("momentum_buffer", value)) momentum_buffer = value.toTensor();
}

void LarsParamState::serialize(torch::serialize::OutputArchive& archive) const {
  if (momentum_buffer.defined()) archive.write("momentum_buffer", c10::IValue(momentum_buffer));
}

Lars::Lars(const std::vector<torch::optim::OptimizerParamGroup>& groups, const LarsOptions& defaults)
    : Optimizer(groups, std::make_unique<LarsOptions>(defaults)) {
  check(defaults);
  for (const torch::optim::OptimizerParamGroup& group : param_groups_) {
    check(static_cast<const LarsOptions&>(group.options()));
  }
}

Lars::Lars(std::vector<at::Tensor> parameters, const LarsOptions& defaults)
    : Lars({torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults) {}

at::Tensor Lars::step(LossClosure closure) {
  const at::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  for (torch::optim::OptimizerParamGroup& group : param_groups_) {
    const auto& options = static_cast<const LarsOptions&>(group.options());
    for (at::Tensor& parameter : group.params()) {
      at::Tensor gradient = parameter.grad();
      if (!gradient.defined()) continue;
      if (gradient.layout() != at::kStrided) throw Error("LARS takes dense gradients; this one is sparse");
      const bool adapted = parameter.dim() > 1;
      if (adapted && options.weight_decay != 0.0) gradient = gradient.add(parameter, options.weight_decay);
      const double rate = adapted ? adapted_rate(options, parameter, gradient) : options.lr;
      if (options.momentum == 0.0) {
        parameter.sub_(gradient, rate);
        continue;
      }
      auto& entry = state_[parameter.unsafeGetTensorImpl()];
      if (entry == nullptr) entry = std::make_unique<LarsParamState>();
      at::Tensor& velocity = static_cast<LarsParamState&>(*entry).momentum_buffer;
      if (!velocity.defined()) velocity = at::zeros_like(parameter, {}, at::MemoryFormat::Preserve);
      velocity.mul_(options.momentum).add_(gradient, rate);
      if (options.nesterov) parameter.sub_(gradient, rate);
      parameter.sub_(velocity, options.nesterov ? options.momentum : 1.0);
    }
  }
  return loss;
}

void Lars::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<LarsParamState, LarsOptions>(archive, *this);
}

void Lars::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<LarsParamState, LarsOptions>(archive, *this);
}

}  // namespace spillway::optimizer

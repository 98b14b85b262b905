#include "optimizer/fused_model.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <sstream>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <spillway/optimizer/state_fields.hpp>

namespace spillway::test {
namespace {

using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamGroup;

at::Tensor normal(const std::vector<std::int64_t>& sizes, Random& random) {
  return at::randn(sizes, at::detail::createCPUGenerator(random.below(1U << 30)), at::TensorOptions(at::kFloat));
}

at::Tensor random_weight(Random& random, at::ScalarType type) {
  const auto odd = [&](std::uint64_t most) { return static_cast<std::int64_t>(random.between(1, most)); };
  at::Tensor weight;
  switch (random.below(8)) {
    case 0:
      weight = normal({random.chance(1, 2) ? 0 : 1}, random);
      break;
    case 1:
      weight = normal({odd(17), odd(17)}, random).t();
      break;
    case 2:
      weight = normal({odd(3), odd(5), odd(4), odd(5)}, random).contiguous(at::MemoryFormat::ChannelsLast);
      break;
    case 3:
      weight = random.chance(1, 4) ? normal({65'537 + odd(3000)}, random) : normal({}, random);
      break;
    default:
      weight = normal({odd(300)}, random);
  }
  const double scale = std::pow(10.0, -3.0 * random.unit());
  return weight.mul_(random.chance(1, 8) ? 0.0 : scale).to(type).requires_grad_();
}

double rate(Random& random) { return std::pow(10.0, -1.0 - 3.0 * random.unit()); }
double decay(Random& random) { return random.chance(1, 2) ? 0.0 : 0.1 * random.unit(); }

template <typename Options>
void set_adam(Options& options, Random& random) {
  options.lr(rate(random)).weight_decay(decay(random)).eps(random.chance(1, 2) ? 1e-8 : 1e-5);
  options.betas({random.chance(1, 2) ? 0.9 : 0.5, random.chance(1, 2) ? 0.999 : 0.9});
}

void set_options(OptimizerOptions& options, Random& random) {
  if (auto* adam = dynamic_cast<torch::optim::AdamOptions*>(&options)) {
    set_adam(*adam, random);
  } else if (auto* adamw = dynamic_cast<torch::optim::AdamWOptions*>(&options)) {
    set_adam(*adamw, random);
  } else if (auto* sgd = dynamic_cast<torch::optim::SGDOptions*>(&options)) {
    sgd->lr(rate(random)).weight_decay(decay(random)).nesterov(sgd->momentum() != 0 && random.chance(1, 2));
    sgd->dampening(sgd->nesterov() ? 0.0 : 0.5 * random.unit());
  } else {
    auto& adagrad = dynamic_cast<torch::optim::AdagradOptions&>(options);
    adagrad.lr(rate(random)).weight_decay(decay(random)).lr_decay(random.chance(1, 2) ? 0.0 : 0.1);
  }
}

// Options that state depends on are chosen once, for each group; the others then vary.
template <typename Kind, typename Options, typename Choose>
Recipe recipe_of(std::string name, std::size_t groups, Random& random, const Choose& choose) {
  std::vector<Options> options;
  for (std::size_t g = 0; g < groups; ++g) {
    Options chosen(1e-2);
    choose(chosen);
    set_options(chosen, random);
    options.push_back(chosen);
  }
  return {std::move(name), [options](const TensorGroups& weights) -> std::unique_ptr<torch::optim::Optimizer> {
            std::vector<OptimizerParamGroup> made;
            for (std::size_t g = 0; g < weights.size(); ++g) {
              made.emplace_back(weights[g], std::make_unique<Options>(options[g]));
            }
            return std::make_unique<Kind>(made, options[0]);
          }};
}

Recipe random_recipe(std::size_t groups, Random& random) {
  const auto amsgrad = [&](auto& options) { options.amsgrad(random.chance(1, 2)); };
  switch (random.below(4)) {
    case 0:
      return recipe_of<torch::optim::Adam, torch::optim::AdamOptions>("Adam", groups, random, amsgrad);
    case 1:
      return recipe_of<torch::optim::AdamW, torch::optim::AdamWOptions>("AdamW", groups, random, amsgrad);
    case 2:
      return recipe_of<torch::optim::SGD, torch::optim::SGDOptions>(
          "SGD", groups, random, [&](auto& options) { options.momentum(random.chance(1, 3) ? 0.0 : 0.9); });
    default: {
      const double start = random.chance(1, 2) ? 0.0 : 0.5;
      return recipe_of<torch::optim::Adagrad, torch::optim::AdagradOptions>(
          "Adagrad", groups, random, [&](auto& options) { options.initial_accumulator_value(start); });
    }
  }
}

template <typename Copy>
TensorGroups map_tied(const TensorGroups& groups, const Copy& copy) {
  std::unordered_map<const c10::TensorImpl*, at::Tensor> made;
  TensorGroups result;
  for (const Tensors& group : groups) {
    Tensors& list = result.emplace_back();
    for (const at::Tensor& tensor : group) {
      const auto [entry, fresh] = made.try_emplace(tensor.unsafeGetTensorImpl());
      if (fresh) {
        entry->second = copy(tensor);
      }
      list.push_back(entry->second);
    }
  }
  return result;
}

// LibTorch's load moves the state of a parameter that is listed twice away at its second mention: that one is hidden.
void load_tied(torch::optim::Optimizer& plain, std::stringstream& archive) {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<std::pair<at::Tensor*, at::Tensor>> hidden;
  for (OptimizerParamGroup& group : plain.param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      if (!seen.insert(parameter.unsafeGetTensorImpl()).second) {
        hidden.emplace_back(&parameter, parameter);
        parameter = at::empty({0});
      }
    }
  }
  torch::load(plain, archive);
  for (auto& [place, parameter] : hidden) {
    plain.state().erase(place->unsafeGetTensorImpl());
    *place = parameter;
  }
}

// Half a unit in the last place of a 16-bit weight of this size: what its own rounding may add.
double rounding_of(at::ScalarType type, double value) {
  switch (type) {
    case at::kBFloat16:
      return std::ldexp(1.0, std::ilogb(std::max(std::abs(value), 0x1p-126)) - 8);
    case at::kHalf:
      return std::ldexp(1.0, std::ilogb(std::max(std::abs(value), 0x1p-14)) - 11);
    default:
      return 0.0;
  }
}

double unit_in_the_last_place(double value) {
  return std::ldexp(1.0, std::ilogb(std::max(std::abs(value), 0x1p-126)) - 23);
}

// Over one weight. @see worst_ulps.
double worst_ulps_of(const at::Tensor& before, const at::Tensor& after, const at::Tensor& exact) {
  const auto flat = [](const at::Tensor& tensor) { return tensor.detach().to(at::kDouble).reshape(-1).contiguous(); };
  const at::Tensor from = flat(before);
  const at::Tensor to = flat(after);
  const at::Tensor wanted = flat(exact);
  const double* const old = from.const_data_ptr<double>();
  const double* const got = to.const_data_ptr<double>();
  const double* const right = wanted.const_data_ptr<double>();
  double worst = 0.0;
  for (std::int64_t k = 0; k < to.numel(); ++k) {
    const double error = std::abs(got[k] - right[k]) - rounding_of(after.scalar_type(), right[k]);
    if (error > 0.0) {
      worst = std::max(worst, error / unit_in_the_last_place(std::max(std::abs(old[k]), std::abs(right[k] - old[k]))));
    }
  }
  return worst;
}

}  // namespace

RandomModel random_model(Random& random, const RandomModelLimits& limits) {
  RandomModel model;
  const std::size_t groups = random.between(1, 3);
  model.weights.resize(groups);
  const std::uint64_t parameters = random.between(groups, 40);
  for (std::uint64_t i = 0; i < parameters; ++i) {
    const auto type = random.chance(1, 2) ? limits.types.front() : random.pick(std::span(limits.types));
    model.weights[i < groups ? i : random.below(groups)].push_back(random_weight(random, type));
  }
  const at::Tensor& first = model.weights[0][0];
  if (limits.tied && first.scalar_type() == at::kFloat && random.chance(1, 3)) {
    model.weights[0].push_back(first);  // Not with other options: LibTorch makes its state for those of the first use.
  }
  model.recipe = random_recipe(groups, random);
  return model;
}

void change_options(torch::optim::Optimizer& optimizer, Random& random) {
  for (auto& group : optimizer.param_groups()) {
    set_options(group.options(), random);
  }
}

TensorGroups random_gradients(const TensorGroups& weights, Random& random) {
  const double scale = std::pow(10.0, -2.0 * random.unit());
  return map_tied(weights, [&](const at::Tensor& weight) {
    if (random.chance(1, 5)) {
      return at::Tensor();
    }
    if (random.chance(1, 8)) {
      return normal({}, random).to(weight.scalar_type()).expand(weight.sizes());
    }
    const at::Tensor gradient = normal(weight.sizes().vec(), random).mul_(scale).to(weight.scalar_type());
    return random.chance(1, 4) ? gradient : at::empty_like(weight.detach()).copy_(gradient);
  });
}

void give(const TensorGroups& weights, const TensorGroups& gradients) {
  for (std::size_t g = 0; g < weights.size(); ++g) {
    for (std::size_t i = 0; i < weights[g].size(); ++i) {
      weights[g][i].mutable_grad() = gradients[g][i];
    }
  }
}

TensorGroups clone_tied(const TensorGroups& groups) {
  return map_tied(
      groups, [](const at::Tensor& tensor) { return tensor.detach().clone().requires_grad_(tensor.requires_grad()); });
}

TensorGroups exact_step(const Optimizer& optimizer, const Recipe& recipe, const TensorGroups& weights,
                        const TensorGroups& gradients) {
  std::stringstream archive;
  torch::save(static_cast<const torch::optim::Optimizer&>(optimizer), archive);
  const auto wide = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.detach().to(at::kDouble, false, true) : tensor;
  };
  TensorGroups exact = map_tied(weights, [&](const at::Tensor& weight) { return wide(weight).requires_grad_(); });
  const auto plain = recipe.make(exact);
  load_tied(*plain, archive);
  const optimizer::StateFields& fields = *optimizer::find_state_fields(*plain);
  for (auto& [key, state] : plain->state()) {
    for (std::size_t field = 0; field < fields.names().size(); ++field) {
      at::Tensor& tensor = fields.tensor(*state, field);
      tensor = wide(tensor);
    }
  }
  for (std::size_t g = 0; g < exact.size(); ++g) {
    plain->param_groups()[g].set_options(optimizer.param_groups()[g].options().clone());
    for (std::size_t i = 0; i < exact[g].size(); ++i) {
      exact[g][i].mutable_grad() = wide(gradients[g][i]);
    }
  }
  plain->step();
  return exact;
}

double worst_ulps(const TensorGroups& before, const TensorGroups& after, const TensorGroups& exact) {
  std::unordered_map<const c10::TensorImpl*, int> uses;
  for (const Tensors& group : after) {
    for (const at::Tensor& weight : group) {
      ++uses[weight.unsafeGetTensorImpl()];
    }
  }
  double worst = 0.0;
  for (std::size_t g = 0; g < after.size(); ++g) {
    for (std::size_t i = 0; i < after[g].size(); ++i) {
      const at::Tensor& weight = after[g][i];
      if (weight.scalar_type() != at::kDouble && uses[weight.unsafeGetTensorImpl()] == 1) {
        worst = std::max(worst, worst_ulps_of(before[g][i], weight, exact[g][i]));
      }
    }
  }
  return worst;
}

}  // namespace spillway::test

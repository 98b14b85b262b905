#include "optimizer/training.hpp"

#include <algorithm>
#include <cstring>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <spillway/offload/error.hpp>
#include <spillway/optimizer/lars.hpp>

namespace spillway::test {
namespace {

using torch::optim::OptimizerParamGroup;
using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kStarts = 4096;  // Places in the pool where a gradient may start.

at::Tensor random(const Shape& shape, std::uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kFloat));
}

template <typename Kind, typename Options>
Recipe recipe(std::string name, Options first, Options second) {
  return {std::move(name), [first, second](const TensorGroups& groups) {
            std::vector<OptimizerParamGroup> param_groups;
            for (std::size_t g = 0; g < groups.size(); ++g) {
              param_groups.emplace_back(groups[g], std::make_unique<Options>(g == 0 ? first : second));
            }
            return std::make_unique<Kind>(param_groups, first);
          }};
}

template <typename Kind, typename Options>
void add_adam_combinations(const std::string& name, std::vector<Recipe>& recipes) {
  for (unsigned bits = 0; bits < 8; ++bits) {
    Options first(1e-2);
    first.weight_decay((bits & 1U) != 0 ? 0.05 : 0.0);
    first.amsgrad((bits & 2U) != 0);
    if ((bits & 4U) != 0) {
      first.betas(std::make_tuple(0.5, 0.97)).eps(1e-5);
    }
    Options second = first;
    second.lr(3e-3);
    second.weight_decay((bits & 1U) != 0 ? 0.0 : 0.01);
    second.amsgrad((bits & 4U) != 0);
    recipes.push_back(recipe<Kind>(name + " " + std::to_string(bits), first, second));
  }
}

void add_sgd_combinations(std::vector<Recipe>& recipes) {
  for (const double decay : {0.0, 0.05}) {
    for (const double momentum : {0.0, 0.9}) {
      for (const double dampening : {0.0, 0.1}) {
        for (const bool nesterov : {false, true}) {
          if (nesterov && (momentum == 0 || dampening != 0)) {
            continue;  // LibTorch refuses it.
          }
          torch::optim::SGDOptions first(0.1);
          first.weight_decay(decay).momentum(momentum).dampening(dampening).nesterov(nesterov);
          torch::optim::SGDOptions second(0.02);
          second.momentum(decay > 0 ? 0.5 : 0.0);
          recipes.push_back(recipe<torch::optim::SGD>("SGD " + std::to_string(recipes.size()), first, second));
        }
      }
    }
  }
}

void add_rmsprop_combinations(std::vector<Recipe>& recipes) {
  for (unsigned bits = 0; bits < 8; ++bits) {
    torch::optim::RMSpropOptions first(1e-2);
    first.weight_decay((bits & 1U) != 0 ? 0.05 : 0.0).momentum((bits & 2U) != 0 ? 0.9 : 0.0).centered((bits & 4U) != 0);
    torch::optim::RMSpropOptions second(3e-3);
    second.alpha(0.9).eps(1e-5).momentum((bits & 4U) != 0 ? 0.5 : 0.0);
    recipes.push_back(recipe<torch::optim::RMSprop>("RMSprop " + std::to_string(bits), first, second));
  }
}

// The value that the sums start from is one of the optimizer's, not of its groups.
void add_adagrad_combinations(std::vector<Recipe>& recipes) {
  for (unsigned bits = 0; bits < 8; ++bits) {
    torch::optim::AdagradOptions first(1e-2);
    first.weight_decay((bits & 1U) != 0 ? 0.05 : 0.0).lr_decay((bits & 2U) != 0 ? 0.1 : 0.0);
    first.initial_accumulator_value((bits & 4U) != 0 ? 0.5 : 0.0);
    torch::optim::AdagradOptions second(3e-3);
    second.eps(1e-5);
    recipes.push_back(recipe<torch::optim::Adagrad>("Adagrad " + std::to_string(bits), first, second));
  }
}

}  // namespace

TensorGroups odd_parameters() {
  TensorGroups groups{
      {random({17, 13}, 1), random({13}, 2), random({129}, 3), random({0, 4}, 4), random({29, 5}, 5).t()},
      {random({5, 3, 2}, 6), random({257}, 7), random({}, 8),
       random({2, 3, 4, 5}, 9).contiguous(at::MemoryFormat::ChannelsLast), random({7, 7}, 10)}};
  for (Tensors& group : groups) {
    for (at::Tensor& parameter : group) {
      parameter.requires_grad_();
    }
  }
  groups[1].back().requires_grad_(false);
  return groups;
}

TensorGroups mlp_parameters() {
  TensorGroups groups{{random({1024, 1024}, 1), random({1024}, 2), random({777, 1024}, 3), random({777}, 4)},
                      {random({1024, 777}, 5), random({1024}, 6), random({333, 1001}, 7), random({99, 3001}, 8),
                       random({311111}, 9), random({299, 1000}, 10), random({501, 501}, 11)}};
  for (Tensors& group : groups) {
    for (at::Tensor& parameter : group) {
      parameter.requires_grad_();
    }
  }
  groups[1].back().requires_grad_(false);
  return groups;
}

Gradients::Gradients(std::int64_t largest_numel) : pool_(random({largest_numel + kStarts}, 99)) {}

// Not a view in autograd's eyes: LibTorch's zero_grad detaches gradients, which it refuses to do with views.
at::Tensor Gradients::make(const at::Tensor& parameter, std::int64_t step, std::int64_t index) const {
  float* start = pool_.data_ptr<float>() + (step * 977 + index * 131) % kStarts;
  return at::from_blob(start, parameter.sizes(), parameter.strides(), parameter.options().requires_grad(false));
}

void Gradients::give(const TensorGroups& groups, std::int64_t step) const {
  std::int64_t index = 0;
  for (const Tensors& group : groups) {
    for (std::size_t i = 0; i < group.size(); ++i, ++index) {
      const bool without = !group[i].requires_grad() || (i == 1 && step % 2 == 1) || (i == 2 && step < 10);
      group[i].mutable_grad() = without ? at::Tensor() : make(group[i], step, index);
    }
  }
}

std::vector<Recipe> all_option_combinations() {
  std::vector<Recipe> recipes;
  add_adam_combinations<torch::optim::Adam, torch::optim::AdamOptions>("Adam", recipes);
  add_adam_combinations<torch::optim::AdamW, torch::optim::AdamWOptions>("AdamW", recipes);
  add_sgd_combinations(recipes);
  add_rmsprop_combinations(recipes);
  add_adagrad_combinations(recipes);
  return recipes;
}

Recipe adamw() {
  return recipe<torch::optim::AdamW>("AdamW", torch::optim::AdamWOptions(1e-2).weight_decay(0.05),
                                     torch::optim::AdamWOptions(3e-3));
}

Recipe sgd_with_momentum() {
  return recipe<torch::optim::SGD>("SGD", torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true),
                                   torch::optim::SGDOptions(0.02).momentum(0.5).dampening(0.1).weight_decay(0.01));
}

Recipe lars() {
  LarsOptions first(5.0);
  first.weight_decay = 0.05;
  LarsOptions second(1.0);
  second.nesterov = true;
  return recipe<Lars>("LARS", first, second);
}

std::vector<Recipe> one_of_each_kind() {
  return {recipe<torch::optim::Adam>("Adam", torch::optim::AdamOptions(1e-2).weight_decay(0.05),
                                     torch::optim::AdamOptions(3e-3).betas(std::make_tuple(0.5, 0.97))),
          recipe<torch::optim::AdamW>("AdamW", torch::optim::AdamWOptions(1e-2).amsgrad(true),
                                      torch::optim::AdamWOptions(3e-3)),
          sgd_with_momentum(),
          recipe<torch::optim::RMSprop>("RMSprop", torch::optim::RMSpropOptions(1e-2).momentum(0.9),
                                        torch::optim::RMSpropOptions(3e-3).centered(true)),
          recipe<torch::optim::Adagrad>("Adagrad", torch::optim::AdagradOptions(1e-2),
                                        torch::optim::AdagradOptions(3e-3).lr_decay(0.1)),
          lars()};
}

std::vector<Home> all_homes() {
  std::vector<Home> homes{{"in memory", StateDevice::kNone}, {"host", StateDevice::kCpu}};
  for (const auto engine : {offload::EngineChoice::kIoUring, offload::EngineChoice::kThreads}) {
    for (const unsigned percent : {0U, 30U, 100U}) {
      const std::string name = engine == offload::EngineChoice::kIoUring ? "io_uring " : "threads ";
      homes.push_back({name + std::to_string(percent) + " %", StateDevice::kNvme, engine, percent});
    }
  }
  return homes;
}

OptimizerConfig config_for(const Home& home, const Recipe& recipe, const TensorGroups& groups,
                           const std::filesystem::path& folder, std::uint64_t sub_group_numel) {
  OptimizerConfig config;
  config.state = home.device;
  config.sub_group_numel = sub_group_numel;
  config.buffer_count = 2;
  config.tiers_options.engine = home.engine;
  config.tiers_options.log = [](const std::string&) {};
  if (home.device != StateDevice::kNvme) {
    return config;
  }
  config.nvme_path = folder.string();
  // Without a limit the ring is all that stays in host memory: the size of everything is read from such a one.
  const StatePlacement streamed = wrap(recipe.make(clone(groups)), config)->placement();
  const std::uint64_t all = streamed.disk_bytes + streamed.resident_bytes;
  if (home.percent == 100) {
    config.host_bytes = all;
  } else {
    config.host_bytes = streamed.ring_bytes;
    if (home.percent > 0) {
      config.host_bytes += std::max(all * home.percent / 100, offload::kPageBytes);
    }
  }
  return config;
}

std::string io_uring_refusal(const std::filesystem::path& folder) {
  offload::TiersOptions options;
  options.nvme_path = folder.string();
  options.engine = offload::EngineChoice::kIoUring;
  options.log = [](const std::string&) {};
  try {
    const offload::Tiers tiers(options);
    return {};
  } catch (const IoError& refused) {
    return refused.what();
  }
}

TensorGroups clone(const TensorGroups& groups) {
  TensorGroups copies;
  for (const Tensors& group : groups) {
    Tensors& copy = copies.emplace_back();
    for (const at::Tensor& parameter : group) {
      copy.push_back(parameter.detach().clone().requires_grad_(parameter.requires_grad()));
    }
  }
  return copies;
}

bool bit_equal(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.detach().contiguous();
  const at::Tensor right = b.detach().contiguous();
  return left.sizes() == right.sizes() && left.dtype() == right.dtype() &&
         (left.numel() == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0);
}

std::string differences(const TensorGroups& a, const TensorGroups& b) {
  std::string names;
  for (std::size_t g = 0; g < a.size(); ++g) {
    for (std::size_t i = 0; i < a[g].size(); ++i) {
      if (!bit_equal(a[g][i], b.at(g).at(i))) {
        names += " " + std::to_string(g) + "/" + std::to_string(i);
      }
    }
  }
  return names;
}

}  // namespace spillway::test

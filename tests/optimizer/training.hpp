#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <spillway/optimizer/sharded_optimizer.hpp>

namespace spillway::test {

using Tensors = std::vector<at::Tensor>;
using TensorGroups = std::vector<Tensors>;  ///< One list a parameter group.

/// Shapes that are multiples of nothing, in two groups: matrices, vectors, a scalar, a tensor of no elements, one with
/// transposed and one with channels-last strides, one that is frozen.
TensorGroups odd_parameters();
/// The multilayer perceptron 1024 -> 1024 -> 777 -> 1024 with biases, and a few tensors more (so that a part of the
/// state can stay resident beside two buffers of the largest): 4 million parameters in two groups, one of them frozen.
TensorGroups mlp_parameters();

/// Gradients that are made up, the same for everyone who asks for the same step and parameter: slices of one pool.
class Gradients {
 public:
  explicit Gradients(std::int64_t largest_numel);

  /// Gives every parameter that wants one the gradient of this step, in memory that is shared: optimizers do not change
  /// it. The second of each group goes without in odd steps, the third until step 10.
  void give(const TensorGroups& groups, std::int64_t step) const;
  /// One gradient, like `parameter` in shape and strides.
  at::Tensor make(const at::Tensor& parameter, std::int64_t step, std::int64_t index) const;

 private:
  at::Tensor pool_;
};

/// Makes a LibTorch optimizer over groups of parameters, with its options.
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(const TensorGroups&)>;

struct Recipe {
  std::string name;
  MakeOptimizer make;
};

/// Every kind that LibTorch has (but LBFGS) with every combination of its options; the second group has others than the
/// first.
std::vector<Recipe> all_option_combinations();
/// One of each kind, with state.
std::vector<Recipe> one_of_each_kind();
Recipe adamw();
Recipe sgd_with_momentum();
Recipe lars();

/// Hard budget of a wrapped optimizer as a part of its state: none (the staging buffers alone), a third, all of it.
struct Home {
  std::string name;
  StateDevice device = StateDevice::kNone;
  offload::EngineChoice engine = offload::EngineChoice::kThreads;
  unsigned percent = 0;
};

/// In memory, on host, on NVMe with both engines at 0, 30 and 100 %.
std::vector<Home> all_homes();

/// The configuration that keeps `home.percent` of the state of `recipe` over `groups` in host memory.
OptimizerConfig config_for(const Home& home, const Recipe& recipe, const TensorGroups& groups,
                           const std::filesystem::path& folder, std::uint64_t sub_group_numel);

/// Empty where io_uring works here, else why not.
std::string io_uring_refusal(const std::filesystem::path& folder);

/// Deep copies that are leaves and want gradients as the originals do.
TensorGroups clone(const TensorGroups& groups);
bool bit_equal(const at::Tensor& a, const at::Tensor& b);
/// The names of those parameters that differ in any bit; empty where none does.
std::string differences(const TensorGroups& a, const TensorGroups& b);

}  // namespace spillway::test

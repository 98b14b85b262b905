#include <spillway/app/encoders/activation_checkpoint.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

/// Where one of LibTorch's generators stands.
struct GeneratorState {
  at::Generator generator;
  at::Tensor state;
};

std::vector<GeneratorState> generator_states(const at::Device& device) {
  std::vector<at::Generator> generators = {at::globalContext().defaultGenerator(at::kCPU)};
  if (!device.is_cpu()) generators.push_back(at::globalContext().defaultGenerator(device));
  std::vector<GeneratorState> states;
  for (at::Generator& generator : generators) {
    const std::lock_guard lock(generator.mutex());
    states.push_back({generator, generator.get_state()});
  }
  return states;
}

void set_generators(const std::vector<GeneratorState>& states) {
  for (const auto& [generator, state] : states) {
    at::Generator same = generator;  // A handle: the generator itself is LibTorch's.
    const std::lock_guard lock(same.mutex());
    same.set_state(state);
  }
}

/// While it lives, random numbers are those that came after `states`; then those that would have come without it.
class ReplayedRandomness {
 public:
  ReplayedRandomness(const std::vector<GeneratorState>& states, const at::Device& device)
      : before_(generator_states(device)) {
    set_generators(states);
  }
  ReplayedRandomness(const ReplayedRandomness&) = delete;
  ReplayedRandomness& operator=(const ReplayedRandomness&) = delete;
  ~ReplayedRandomness() { set_generators(before_); }

 private:
  std::vector<GeneratorState> before_;
};

struct Autocast {
  explicit Autocast(at::DeviceType type)
      : device(type), enabled(at::autocast::is_autocast_enabled(type)), dtype(at::autocast::get_autocast_dtype(type)) {}

  void set() const {
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, dtype);
  }

  at::DeviceType device;
  bool enabled;
  at::ScalarType dtype;
};

/// While it lives, this thread's operations are cast as `autocast` says, without the cache of casts.
class UncachedAutocast {
 public:
  explicit UncachedAutocast(const Autocast& autocast)
      : before_(autocast.device), cached_(at::autocast::is_autocast_cache_enabled()) {
    autocast.set();
    at::autocast::set_autocast_cache_enabled(false);
  }
  UncachedAutocast(const UncachedAutocast&) = delete;
  UncachedAutocast& operator=(const UncachedAutocast&) = delete;
  ~UncachedAutocast() {
    before_.set();
    at::autocast::set_autocast_cache_enabled(cached_);
  }

 private:
  Autocast before_;
  bool cached_;
};

/// From the gradient of the output to those of input and parameters, by running the part again.
class RecomputeNode final : public torch::autograd::Node {
 public:
  RecomputeNode(Recomputable part, const variable_list& inputs)
      : Node(torch::autograd::collect_next_edges(inputs)),
        part_(std::move(part)),
        device_(inputs.front().device()),
        randomness_(generator_states(device_)),
        autocast_(device_.type()) {
    for (const at::Tensor& input : inputs) saved_.emplace_back(input, /*is_output=*/false);
  }

  at::Tensor first_pass(const at::Tensor& input) const {
    const at::NoGradGuard no_grad;
    const UncachedAutocast uncached(autocast_);
    return part_(input, Pass::kFirst);
  }

  variable_list apply(variable_list&& gradients) override {
    if (at::GradMode::is_enabled()) {
      throw Error(
          "activation checkpointing has no second derivative: call backward without create_graph, or set "
          "encoder.checkpointing to false");
    }
    variable_list inputs = unpack();
    variable_list results(inputs.size());
    if (!gradients.front().defined()) return results;
    // A leaf in the input's place: what lies before it belongs to the graph around.
    inputs.front() = inputs.front().detach().set_requires_grad(task_should_compute_output(0));
    variable_list wanted;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (task_should_compute_output(i)) wanted.push_back(inputs[i]);
    }
    const variable_list found = torch::autograd::grad({second_pass(inputs.front())}, wanted, {gradients.front()},
                                                      /*retain_graph=*/false, /*create_graph=*/false,
                                                      /*allow_unused=*/true);
    std::size_t next = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (task_should_compute_output(i)) results[i] = found[next++];
    }
    return results;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    for (SavedVariable& tensor : saved_) tensor.reset_data();
  }

  std::string name() const override { return "spillway::checkpointed"; }

 private:
  variable_list unpack() {
    const std::lock_guard lock(mutex_);
    variable_list inputs;
    for (const SavedVariable& tensor : saved_) inputs.push_back(tensor.unpack());
    return inputs;
  }

  at::Tensor second_pass(const at::Tensor& input) const {
    const at::AutoGradMode grad(true);
    const UncachedAutocast uncached(autocast_);
    const ReplayedRandomness replayed(randomness_, device_);
    return part_(input, Pass::kAgain);
  }

  Recomputable part_;
  at::Device device_;
  std::vector<GeneratorState> randomness_;
  Autocast autocast_;
  std::vector<SavedVariable> saved_;  // The input, then the parameters.
};

}  // namespace

at::Tensor checkpointed(const Recomputable& part, const at::Tensor& input, const std::vector<at::Tensor>& parameters) {
  variable_list inputs = {input};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  if (!at::GradMode::is_enabled() || std::ranges::none_of(inputs, [](const auto& t) { return t.requires_grad(); })) {
    return part(input, Pass::kFirst);
  }
  const std::shared_ptr<RecomputeNode> node(new RecomputeNode(part, inputs), torch::autograd::deleteNode);
  at::Tensor output = node->first_pass(input);
  torch::autograd::set_history(output, node);
  return output;
}

}  // namespace spillway::app

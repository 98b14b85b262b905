// Optimizers that LibTorch does not have, described by their author.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/optimizer.h>

#include "optimizer/wrapped_fixture.hpp"

namespace spillway::test::own_optimizer_test {
namespace {

using torch::optim::OptimizerParamGroup;

struct LionState : torch::optim::OptimizerCloneableParamState<LionState> {
  at::Tensor momentum;
  std::int64_t steps = 0;
};

struct LionOptions : torch::optim::OptimizerCloneableOptions<LionOptions> {
  double lr = 1e-3;
  double get_lr() const override { return lr; }
  void set_lr(double value) override { lr = value; }
};

/// Lion (Chen et al. 2023) without weight decay. With `counts_steps` its rate falls with the calls of step() itself.
class Lion final : public torch::optim::Optimizer {
 public:
  explicit Lion(const TensorGroups& groups, bool counts_steps = false)
      : Optimizer(param_groups(groups), std::make_unique<LionOptions>()), counts_steps_(counts_steps) {}

  at::Tensor step(LossClosure /*closure*/ = nullptr) override {
    const at::NoGradGuard no_grad;
    ++calls_;
    const double rate = counts_steps_ ? 1.0 / static_cast<double>(calls_) : 1.0;
    for (OptimizerParamGroup& group : param_groups_) {
      for (at::Tensor& parameter : group.params()) {
        if (!parameter.grad().defined()) continue;
        LionState& state = state_of(parameter);
        ++state.steps;
        const at::Tensor update = state.momentum.mul(0.9).add(parameter.grad(), 0.1).sign();
        parameter.sub_(update, rate * group.options().get_lr());
        state.momentum.mul_(0.99).add_(parameter.grad(), 0.01);
      }
    }
    return {};
  }

 private:
  static std::vector<OptimizerParamGroup> param_groups(const TensorGroups& groups) {
    std::vector<OptimizerParamGroup> made;
    for (const Tensors& group : groups) made.emplace_back(group, std::make_unique<LionOptions>());
    return made;
  }

  LionState& state_of(const at::Tensor& parameter) {
    auto& entry = state_[parameter.unsafeGetTensorImpl()];
    if (entry == nullptr) {
      auto state = std::make_unique<LionState>();
      state->momentum = at::zeros_like(parameter);
      entry = std::move(state);
    }
    return static_cast<LionState&>(*entry);
  }

  bool counts_steps_;
  std::int64_t calls_ = 0;
};

class LionFields final : public StateFields {
 public:
  explicit LionFields(bool whole_model = false) : whole_model_(whole_model) {}

  std::string_view optimizer() const noexcept override { return "Lion"; }
  std::span<const std::string_view> names() const noexcept override {
    static constexpr std::array<std::string_view, 1> kNames{"momentum"};
    return kNames;
  }
  optimizer::FieldMask needed(const torch::optim::OptimizerOptions& /*options*/) const override { return 0b1U; }
  std::unique_ptr<torch::optim::OptimizerParamState> make_zero_state() const override {
    return std::make_unique<LionState>();
  }
  bool whole_model() const noexcept override { return whole_model_; }
  at::Tensor& tensor(torch::optim::OptimizerParamState& state, std::size_t /*field*/) const override {
    return static_cast<LionState&>(state).momentum;
  }

 private:
  bool whole_model_;
};

TEST_F(Wrapped, AnOptimizerOfTheUsersOwnIsStreamedOnceItsStateIsDescribed) {
  plain_weights_ = odd_parameters();
  weights_ = odd_parameters();
  plain_ = std::make_unique<Lion>(plain_weights_);
  OptimizerConfig config = streaming_config();
  config.state_fields = std::make_shared<LionFields>();
  optimizer_ = wrap(std::make_unique<Lion>(weights_), config);
  EXPECT_GT(optimizer_->placement().sub_groups, 3U);
  EXPECT_GT(optimizer_->placement().disk_bytes, 0U);
  step_both(12);
  expect_equal();
}

TEST_F(Wrapped, AnOptimizerThatCountsItsCallsIsSteppedOnceAStep) {
  const auto differ_after = [&](bool whole_model) {
    plain_weights_ = odd_parameters();
    weights_ = odd_parameters();
    plain_ = std::make_unique<Lion>(plain_weights_, true);
    OptimizerConfig config = streaming_config();
    config.state_fields = std::make_shared<LionFields>(whole_model);
    optimizer_ = wrap(std::make_unique<Lion>(weights_, true), config);
    EXPECT_EQ(optimizer_->placement().sub_groups == 1, whole_model);
    step_both(5);
    return differences(weights_, plain_weights_);
  };
  EXPECT_EQ(differ_after(true), "");
  EXPECT_NE(differ_after(false), "") << "the control: cut into sub-groups, its own count runs ahead";
}

TEST_F(Wrapped, ParametersThatComeLaterGetTheStateThatAConstructorMakes) {
  plain_weights_ = odd_parameters();
  weights_ = odd_parameters();
  const auto options = torch::optim::AdagradOptions(1e-2).initial_accumulator_value(0.25);
  plain_ = std::make_unique<torch::optim::Adagrad>(
      std::vector<OptimizerParamGroup>{{plain_weights_[0]}, {plain_weights_[1]}}, options);
  optimizer_ = wrap(std::make_unique<torch::optim::Adagrad>(std::vector<OptimizerParamGroup>{{weights_[0]}}, options),
                    streaming_config());
  optimizer_->add_param_group(
      OptimizerParamGroup(weights_[1], std::make_unique<torch::optim::AdagradOptions>(options)));
  step_both(6);
  expect_equal();
}

}  // namespace
}  // namespace spillway::test::own_optimizer_test

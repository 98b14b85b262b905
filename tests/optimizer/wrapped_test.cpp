// What a training loop does with a wrapped optimizer, beside a plain one: schedulers, closures, groups that are added,
// state that is taken over, archives.
#include <gtest/gtest.h>

#include <sstream>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include "optimizer/wrapped_fixture.hpp"

namespace spillway::test::wrapped_test {
namespace {

using torch::optim::OptimizerParamGroup;

TEST_F(Wrapped, LearningRatesOfAScheduleTakeEffect) {
  start(adamw());
  torch::optim::StepLR plain_schedule(*plain_, 3, 0.5);
  torch::optim::StepLR schedule(*optimizer_, 3, 0.5);
  for (int i = 0; i < 12; ++i) {
    step_both();
    plain_schedule.step();
    schedule.step();
  }
  EXPECT_DOUBLE_EQ(optimizer_->param_groups()[0].options().get_lr(), 1e-2 / 8);
  expect_equal();
}

TEST_F(Wrapped, ASchedulerThatWatchesTheLossTakesEffect) {
  start(sgd_with_momentum());
  torch::optim::ReduceLROnPlateauScheduler plain_schedule(*plain_, torch::optim::ReduceLROnPlateauScheduler::min, 0.1F,
                                                          1);
  torch::optim::ReduceLROnPlateauScheduler schedule(*optimizer_, torch::optim::ReduceLROnPlateauScheduler::min, 0.1F,
                                                    1);
  for (int i = 0; i < 6; ++i) {
    step_both();
    plain_schedule.step(1.0F);
    schedule.step(1.0F);
  }
  EXPECT_LT(optimizer_->param_groups()[0].options().get_lr(), 0.05);
  expect_equal();
}

TEST_F(Wrapped, OptionsThatAreSetOnAGroupCountFromTheNextStep) {
  start(adamw());
  step_both(2);
  for (torch::optim::Optimizer* optimizer : {plain_.get(), static_cast<torch::optim::Optimizer*>(optimizer_.get())}) {
    auto& options = static_cast<torch::optim::AdamWOptions&>(optimizer->param_groups()[1].options());
    options.lr(0.1).weight_decay(0.3).betas(std::make_tuple(0.7, 0.8));
  }
  step_both(2);
  expect_equal();
}

TEST_F(Wrapped, AParameterCountsOnlyTheStepsInWhichItHadAGradient) {
  start(adamw());  // The second parameter of each group has none in odd steps.
  step_both(7);
  const auto steps = [](const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
    const auto& state = *optimizer.state().at(parameter.unsafeGetTensorImpl());
    return static_cast<const torch::optim::AdamWParamState&>(state).step();
  };
  EXPECT_EQ(steps(optimizer_->wrapped(), weights_[0][0]), 7);
  EXPECT_EQ(steps(optimizer_->wrapped(), weights_[0][1]), 4);
  expect_equal();
}

TEST_F(Wrapped, TheStateOfPlainStepsIsTakenOver) {
  for (const Recipe& recipe : one_of_each_kind()) {
    SCOPED_TRACE(recipe.name);
    plain_weights_ = odd_parameters();
    weights_ = odd_parameters();
    plain_ = recipe.make(plain_weights_);
    auto unwrapped = recipe.make(weights_);
    for (step_ = 0; step_ < 5; ++step_) {
      gradients_.give(plain_weights_, step_);
      gradients_.give(weights_, step_);
      plain_->step();
      unwrapped->step();
    }
    wrap_now(std::move(unwrapped));
    const auto& states = optimizer_->wrapped().state();
    EXPECT_FALSE(states.empty());
    step_both(6);
    expect_equal();
  }
}

TEST_F(Wrapped, NoStateTensorStaysInMemoryBetweenSteps) {
  start(adamw());
  step_both(2);
  EXPECT_EQ(optimizer_->wrapped().state().size(), plain_->state().size());
  for (const auto& entry : optimizer_->wrapped().state()) {
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(*entry.second);
    EXPECT_TRUE(!state.exp_avg().defined() || state.exp_avg().numel() == 0);
  }
}

TEST_F(Wrapped, AGroupThatIsAddedIsTrained) {
  start(adamw());
  step_both(3);
  const auto add = [](torch::optim::Optimizer& base, auto& optimizer, TensorGroups& weights) {
    weights.push_back(clone({odd_parameters()[0]})[0]);
    optimizer.add_param_group(OptimizerParamGroup(weights.back(), std::make_unique<torch::optim::AdamWOptions>(0.02)));
    EXPECT_EQ(base.param_groups().size(), 3U);
  };
  add(*plain_, *plain_, plain_weights_);
  add(*optimizer_, *optimizer_, weights_);
  step_both(12);
  expect_equal();
  // Once more through the base class, which does not call the wrapper's.
  plain_weights_.push_back(clone({odd_parameters()[1]})[0]);
  weights_.push_back(clone({odd_parameters()[1]})[0]);
  plain_->add_param_group(OptimizerParamGroup(plain_weights_.back()));
  static_cast<torch::optim::Optimizer&>(*optimizer_).add_param_group(OptimizerParamGroup(weights_.back()));
  step_both(12);
  expect_equal();
}

TEST_F(Wrapped, AGroupWithAParameterThatIsTrainedAlreadyIsRefusedAsLibTorchDoes) {
  start(adamw());
  step_both();
  EXPECT_THROW(plain_->add_param_group(OptimizerParamGroup({plain_weights_[0][0]})), c10::Error);
  EXPECT_THROW(optimizer_->add_param_group(OptimizerParamGroup({weights_[0][0]})), c10::Error);
  EXPECT_EQ(optimizer_->param_groups().size(), 2U);
  step_both(2);
  expect_equal();
}

TEST_F(Wrapped, AFrozenParameterTakesNoRoomUntilItGetsAGradient) {
  start(adamw());
  const std::uint64_t before = optimizer_->placement().state_bytes;
  std::uint64_t trainable = 0;
  for (const Tensors& group : weights_) {
    for (const at::Tensor& parameter : group) {
      trainable += parameter.requires_grad() ? parameter.nbytes() : 0;
    }
  }
  EXPECT_EQ(before, 2 * trainable);
  step_both(2);
  const at::Tensor frozen = weights_[1].back();
  EXPECT_TRUE(bit_equal(frozen, odd_parameters()[1].back()));
  plain_weights_[1].back().requires_grad_();
  weights_[1].back().requires_grad_();
  step_both(3);
  EXPECT_EQ(optimizer_->placement().state_bytes, before + 2 * frozen.nbytes());
  EXPECT_FALSE(bit_equal(frozen, odd_parameters()[1].back()));
  expect_equal();
}

TEST_F(Wrapped, ATiedParameterIsSteppedAsLibTorchStepsIt) {
  plain_weights_ = odd_parameters();
  weights_ = odd_parameters();
  for (TensorGroups* weights : {&plain_weights_, &weights_}) {
    (*weights)[0].push_back((*weights)[0][0]);
    (*weights)[1].push_back((*weights)[0][0]);
  }
  plain_ = adamw().make(plain_weights_);
  wrap_now(adamw().make(weights_));
  step_both(5);
  expect_equal();
  // LibTorch's own load loses the state of such a parameter.
  std::stringstream archive;
  torch::save(*static_cast<torch::optim::Optimizer*>(optimizer_.get()), archive);
  wrap_now(adamw().make(weights_));
  torch::load(*static_cast<torch::optim::Optimizer*>(optimizer_.get()), archive);
  step_both(3);
  expect_equal();
}

TEST_F(Wrapped, AClosureIsCalledOnceWithGradientsEnabled) {
  start(adamw());
  const auto closure_of = [](const TensorGroups& weights, int& calls) {
    return [&weights, &calls] {
      ++calls;
      EXPECT_TRUE(at::GradMode::is_enabled());
      at::Tensor loss = (weights[0][0] * weights[0][0]).sum();
      loss.backward();
      return loss;
    };
  };
  int plain_calls = 0;
  int calls = 0;
  const at::Tensor plain_loss = plain_->step(closure_of(plain_weights_, plain_calls));
  const at::Tensor loss = optimizer_->step(closure_of(weights_, calls));
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(bit_equal(loss, plain_loss));
  EXPECT_FALSE(optimizer_->step().defined());
  plain_->step();
  expect_equal();
}

TEST_F(Wrapped, ZeroGradDoesAsLibTorchDoes) {
  start(adamw());
  weights_[0][0].mutable_grad() = at::ones({17, 13});
  optimizer_->zero_grad(/*set_to_none=*/false);
  EXPECT_TRUE(weights_[0][0].grad().defined());
  EXPECT_EQ(weights_[0][0].grad().sum().item<float>(), 0.0F);
  optimizer_->zero_grad();
  EXPECT_FALSE(weights_[0][0].grad().defined());
}

TEST_F(Wrapped, AStepWithoutAnyGradientChangesNothing) {
  start(adamw());
  step_both(2);
  const TensorGroups before = clone(weights_);
  optimizer_->zero_grad();
  optimizer_->step();
  EXPECT_EQ(differences(before, weights_), "");
  plain_->zero_grad();
  plain_->step();
  step_both(2);
  expect_equal();
}

TEST_F(Wrapped, OptionsThatWereSetSinceTheLastStepAreInTheArchive) {
  start(adamw());
  step_both();
  optimizer_->param_groups()[1].options().set_lr(0.125);
  std::stringstream archive;
  torch::save(*static_cast<torch::optim::Optimizer*>(optimizer_.get()), archive);
  torch::load(*plain_, archive);
  EXPECT_EQ(plain_->param_groups()[1].options().get_lr(), 0.125);
}

TEST_F(Wrapped, ItsArchiveIsThatOfThePlainOptimizer) {
  for (const Recipe& recipe : one_of_each_kind()) {
    SCOPED_TRACE(recipe.name);
    start(recipe);
    step_both(5);
    std::stringstream archive;
    torch::save(*static_cast<torch::optim::Optimizer*>(optimizer_.get()), archive);
    step_both(2);  // Saving disturbs nothing.
    expect_equal();

    // Into a plain one and into a wrapped one that went another way, at the weights of now.
    plain_weights_ = clone(weights_);
    plain_ = recipe.make(plain_weights_);
    std::stringstream copy(archive.str());
    torch::load(*plain_, archive);
    optimizer_->param_groups()[0].options().set_lr(7.0);
    torch::load(*static_cast<torch::optim::Optimizer*>(optimizer_.get()), copy);
    EXPECT_EQ(optimizer_->param_groups()[0].options().get_lr(), plain_->param_groups()[0].options().get_lr());
    step_both(5);
    expect_equal();
    step_ = 0;
  }
}

}  // namespace
}  // namespace spillway::test::wrapped_test

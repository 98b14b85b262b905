// What a step moves is what was predicted, to the byte.
#include <gtest/gtest.h>

#include "optimizer/wrapped_fixture.hpp"

namespace spillway::test::step_bytes_test {
namespace {

class BytesOfAStep : public Wrapped {
 protected:
  StepBytes moved() const {
    const offload::Stats& stats = optimizer_->tiers()->stats();
    return {stats.read_bytes, stats.written_bytes};
  }

  // Takes a step in which every parameter that wants a gradient has one.
  StepBytes step_with_all_gradients() {
    const StepBytes before = moved();
    for (const Tensors& group : weights_) {
      for (const at::Tensor& parameter : group) {
        if (parameter.requires_grad()) {
          parameter.mutable_grad() = gradients_.make(parameter, 0, 0);
        }
      }
    }
    optimizer_->step();
    const StepBytes after = moved();
    return {after.read - before.read, after.written - before.written};
  }
};

TEST_F(BytesOfAStep, AreThosePredicted) {
  for (const Recipe& recipe : one_of_each_kind()) {
    for (const unsigned percent : {0U, 30U, 100U}) {
      SCOPED_TRACE(recipe.name + " " + std::to_string(percent));
      weights_ = odd_parameters();
      const Home home{"", StateDevice::kNvme, offload::EngineChoice::kThreads, percent};
      optimizer_ = wrap(recipe.make(weights_), config_for(home, recipe, weights_, folder_.path(), 200));
      const bool made_by_constructor = recipe.name == "Adagrad";
      EXPECT_EQ(optimizer_->next_step_bytes().read, made_by_constructor ? optimizer_->placement().disk_bytes : 0U);
      for (int step = 0; step < 4; ++step) {
        const StepBytes predicted = optimizer_->next_step_bytes();
        EXPECT_EQ(predicted.written, optimizer_->placement().disk_bytes);
        EXPECT_TRUE(step == 0 || predicted == optimizer_->steady_step_bytes());
        EXPECT_EQ(step_with_all_gradients(), predicted) << "step " << step;
      }
    }
  }
}

TEST_F(BytesOfAStep, AreTheSameHoweverEarlyTheReadsStart) {
  start(adamw());
  step_with_all_gradients();
  optimizer_->flush();
  const StepBytes before = moved();
  optimizer_->prefetch();
  EXPECT_GT(moved().read, before.read);
  optimizer_->prefetch();
  step_with_all_gradients();
  EXPECT_EQ(moved().read - before.read, optimizer_->steady_step_bytes().read);
}

TEST_F(BytesOfAStep, LeaveOutSubGroupsWithoutAGradient) {
  start(adamw());
  step_with_all_gradients();
  const StepBytes before = moved();
  for (const at::Tensor& parameter : weights_[1]) {
    parameter.mutable_grad() = at::Tensor();
  }
  for (const at::Tensor& parameter : weights_[0]) {
    parameter.mutable_grad() = parameter.numel() == 17 * 13 ? gradients_.make(parameter, 1, 0) : at::Tensor();
  }
  optimizer_->step();
  const std::uint64_t block = offload::page_ceil(2 * 17 * 13 * sizeof(float));
  EXPECT_EQ(moved().read - before.read, block);
  EXPECT_EQ(moved().written - before.written, block);
}

TEST_F(BytesOfAStep, CountTheStateThatWasTakenOver) {
  weights_ = odd_parameters();
  auto plain = adamw().make(weights_);
  gradients_.give(weights_, 10);
  plain->step();
  wrap_now(std::move(plain));
  const StepBytes predicted = optimizer_->next_step_bytes();
  EXPECT_EQ(predicted, optimizer_->steady_step_bytes());
  EXPECT_EQ(step_with_all_gradients(), predicted);
}

}  // namespace
}  // namespace spillway::test::step_bytes_test

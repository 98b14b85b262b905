// Unscaling and clipping in the pass of the update: the gradients stay as they are, and the step is that of gradients
// which were unscaled and clipped before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/adamw.h>

#include <spillway/offload/error.hpp>
#include <spillway/optimizer/grad_clip.hpp>
#include <spillway/optimizer/grad_scaler.hpp>

#include "optimizer/wrapped_fixture.hpp"
#include "support/errors.hpp"

namespace spillway::test::scaled_step_test {
namespace {

using ::testing::HasSubstr;

struct Way {
  StateDevice state = StateDevice::kNvme;
  UpdateKernels kernels = UpdateKernels::kLibTorch;
};

class ScaledStep : public Wrapped, public ::testing::WithParamInterface<Way> {
 protected:
  ScaledStep() {
    weights_ = odd_parameters();
    plain_weights_ = odd_parameters();
    OptimizerConfig config = streaming_config();
    config.state = GetParam().state;
    config.kernels = GetParam().kernels;
    optimizer_ = wrap(adamw().make(weights_), config);
    expected_ = wrap(adamw().make(plain_weights_), config);  // Is given gradients that were scaled before.
  }

  // Gradients times `factor`, in memory of their own.
  void give_times(double factor) {
    for (const TensorGroups* weights : {&weights_, &plain_weights_}) {
      gradients_.give(*weights, step_);
      for (const Tensors& group : *weights) {
        for (const at::Tensor& parameter : group) {
          if (parameter.grad().defined()) {
            parameter.mutable_grad() = parameter.grad().mul(factor);
          }
        }
      }
    }
    ++step_;
  }
  TensorGroups gradients_now() const {
    TensorGroups gradients;
    for (const Tensors& group : weights_) {
      Tensors& list = gradients.emplace_back();
      for (const at::Tensor& parameter : group) {
        list.push_back(parameter.grad().defined() ? parameter.grad() : at::zeros({0}));
      }
    }
    return gradients;
  }
  // Kernels scale with more bits than a float32 gradient has; LibTorch's step gets the same tensors.
  void expect_same_weights() const {
    if (GetParam().kernels == UpdateKernels::kLibTorch) {
      EXPECT_EQ(differences(weights_, plain_weights_), "");
      return;
    }
    for (std::size_t g = 0; g < weights_.size(); ++g) {
      for (std::size_t i = 0; i < weights_[g].size(); ++i) {
        EXPECT_TRUE(weights_[g][i].allclose(plain_weights_[g][i], 1e-6, 1e-7)) << g << '/' << i;
      }
    }
  }

  std::unique_ptr<Optimizer> expected_;
};

INSTANTIATE_TEST_SUITE_P(Ways, ScaledStep,
                         ::testing::Values(Way{StateDevice::kNone}, Way{}, Way{StateDevice::kCpu},
                                           Way{StateDevice::kNvme, UpdateKernels::kFused}));

TEST_P(ScaledStep, ClipsAsThePassBeforeTheStepDoesAndLeavesTheGradients) {
  for (const double max_norm : {0.5, 1e9}) {
    give_times(1.0);
    const TensorGroups before = clone(gradients_now());
    const double norm = optimizer_->step_clipped(max_norm);
    EXPECT_EQ(differences(before, gradients_now()), "");
    EXPECT_EQ(expected_->clip_grad_norm_(max_norm), norm);
    expected_->step();
    expect_same_weights();
  }
}

TEST_P(ScaledStep, DividesByTheScaleAndClips) {
  GradScaler scaler;
  for (int step = 0; step < 3; ++step) {
    give_times(scaler.value());
    for (const Tensors& group : plain_weights_) {
      for (const at::Tensor& parameter : group) {
        if (parameter.grad().defined()) {
          parameter.mutable_grad() = parameter.grad().mul(1.0 / scaler.value());
        }
      }
    }
    const TensorGroups before = clone(gradients_now());
    const GradScaler::ClippedStep done = scaler.step_clipped(*optimizer_, 1.0);
    scaler.update();
    EXPECT_TRUE(done.taken);
    EXPECT_EQ(differences(before, gradients_now()), "");
    EXPECT_NEAR(expected_->clip_grad_norm_(1.0), done.norm, 1e-12 * done.norm);
    expected_->step();
    for (std::size_t g = 0; g < weights_.size(); ++g) {
      for (std::size_t i = 0; i < weights_[g].size(); ++i) {
        EXPECT_TRUE(weights_[g][i].allclose(plain_weights_[g][i], 1e-6, 1e-7)) << g << '/' << i;
      }
    }
  }
}

TEST_P(ScaledStep, AnOverflowChangesNothingAndTheNextStepRuns) {
  GradScaler scaler;
  give_times(scaler.value());
  ASSERT_TRUE(scaler.step_clipped(*optimizer_, 1.0).taken);
  scaler.update();
  const TensorGroups before = clone(weights_);
  for (const float damage : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    give_times(scaler.value());
    weights_[0][0].mutable_grad().view(-1)[7] = damage;
    const double scale = scaler.value();
    const GradScaler::ClippedStep done = scaler.step_clipped(*optimizer_, 1.0);
    EXPECT_FALSE(done.taken);
    EXPECT_FALSE(std::isfinite(done.norm));
    scaler.update();
    EXPECT_EQ(scaler.value(), scale / 2);
    EXPECT_EQ(differences(before, weights_), "");
    const auto& state = *optimizer_->wrapped().state().at(weights_[0][0].unsafeGetTensorImpl());
    EXPECT_EQ(static_cast<const torch::optim::AdamWParamState&>(state).step(), 1) << "a skipped step counted";
  }
  EXPECT_EQ(scaler.skipped_steps(), 2U);
  give_times(scaler.value());
  EXPECT_TRUE(scaler.step_clipped(*optimizer_, 1.0).taken);
  EXPECT_NE(differences(before, weights_), "");
}

TEST_P(ScaledStep, GradientsThatWereUnscaledAreNotDividedAgain) {
  GradScaler scaler;
  give_times(scaler.value());
  scaler.unscale_(*optimizer_);
  const double norm = optimizer::gradient_norm(optimizer_->all_parameters());
  EXPECT_EQ(scaler.step_clipped(*optimizer_, 1e9).norm, norm);
  EXPECT_THROW(scaler.step_clipped(*optimizer_, 1.0), Error);
}

TEST_P(ScaledStep, ANormThatMakesNoSenseIsRefusedBeforeAnythingChanges) {
  give_times(1.0);
  const TensorGroups before = clone(weights_);
  GradScaler scaler;
  EXPECT_THAT(message_of<ConfigError>([&] { optimizer_->step_clipped(0.0); }), HasSubstr("norm of 0"));
  EXPECT_THROW(scaler.step_clipped(*optimizer_, -1.0), ConfigError);
  EXPECT_EQ(differences(before, weights_), "");
  EXPECT_TRUE(scaler.step_clipped(*optimizer_, 1.0).taken);
}

}  // namespace
}  // namespace spillway::test::scaled_step_test

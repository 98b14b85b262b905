// A training loop that was written for a plain optimizer, run unchanged around a wrapped one.
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/serialize.h>

#include "optimizer/wrapped_fixture.hpp"

namespace spillway::test::training_loop_test {
namespace {

using ::testing::HasSubstr;

/// Two layers, in two groups as recipes want them.
TensorGroups make_model() {
  at::manual_seed(5);
  const auto parameter = [](at::IntArrayRef sizes) { return (at::randn(sizes) * 0.2).requires_grad_(); };
  return {{parameter({37, 11}), parameter({37})}, {parameter({3, 37}), parameter({3})}};
}

/// What a user sees on the way.
struct Seen {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> largest_gradients;
  bool operator==(const Seen&) const = default;
};

Seen train(torch::optim::Optimizer& optimizer, const TensorGroups& model) {
  const at::Tensor input = at::randn({16, 11});
  const at::Tensor target = at::randn({16, 3});
  Tensors parameters;
  for (const Tensors& group : model) parameters.insert(parameters.end(), group.begin(), group.end());
  torch::optim::StepLR scheduler(optimizer, 4, 0.5);
  Seen seen;
  for (int step = 0; step < 15; ++step) {
    optimizer.zero_grad();
    const at::Tensor hidden = at::linear(input, parameters[0], parameters[1]).tanh();
    const at::Tensor loss = at::mse_loss(at::linear(hidden, parameters[2], parameters[3]), target);
    loss.backward();
    seen.losses.push_back(loss.item<double>());
    seen.norms.push_back(torch::nn::utils::clip_grad_norm_(parameters, 0.05));
    seen.largest_gradients.push_back(parameters[0].grad().abs().max().item<double>());
    optimizer.step();
    scheduler.step();
    if (step == 7) {
      std::stringstream archive;
      torch::save(optimizer, archive);
      torch::load(optimizer, archive);
    }
  }
  return seen;
}

TEST_F(Wrapped, ALoopForAPlainOptimizerRunsUnchangedAndSeesTheSame) {
  for (const Recipe& recipe : one_of_each_kind()) {
    SCOPED_TRACE(recipe.name);
    const TensorGroups plain_model = make_model();
    const Seen plain = train(*recipe.make(plain_model), plain_model);
    EXPECT_LT(plain.losses.back(), plain.losses.front());
    EXPECT_GT(plain.norms.front(), 0.05) << "nothing was clipped";
    for (const StateDevice device : {StateDevice::kNvme, StateDevice::kCpu, StateDevice::kNone}) {
      const TensorGroups model = make_model();
      OptimizerConfig config = streaming_config();
      config.state = device;
      const auto optimizer = wrap(recipe.make(model), config);
      EXPECT_TRUE(train(*optimizer, model) == plain) << "device " << static_cast<int>(device);
      EXPECT_EQ(differences(model, plain_model), "") << "device " << static_cast<int>(device);
    }
  }
}

TEST_F(Wrapped, WhereALoopHasToChangeItIsSaid) {
  const TensorGroups model = make_model();
  std::string said;
  OptimizerConfig config = streaming_config();
  config.gradients = GradientDevice::kCpu;
  config.tiers_options.log = [&said](const std::string& line) { said += line + "\n"; };
  const auto optimizer = wrap(adamw().make(model), config);
  EXPECT_THAT(said, HasSubstr(".grad is undefined"));
  EXPECT_THAT(said, HasSubstr("clip_grad_norm_ of the wrapped"));
  model[0][0].sum().backward();
  EXPECT_FALSE(model[0][0].grad().defined());
}

}  // namespace
}  // namespace spillway::test::training_loop_test

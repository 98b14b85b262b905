// The scaler against torch.amp.GradScaler's trace, on one rank and on several, around plain and wrapped optimizers.
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/distributed/thread_collective.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/optimizer/grad_scaler.hpp>

#include "optimizer/wrapped_fixture.hpp"
#include "support/golden_torch.hpp"

namespace spillway::test::grad_scaler_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

LossScaleOptions golden_options(const GoldenFile& file) {
  LossScaleOptions options;
  options.init_scale = scalar(file, "init_scale");
  options.growth_interval = static_cast<std::uint64_t>(scalar(file, "growth_interval"));
  return options;
}

at::Tensor leaf(at::Tensor tensor) { return tensor.requires_grad_(); }

/// One weight at 0 whose gradient is 1, or infinite, times the scale.
struct OneWeight {
  at::Tensor weight = leaf(at::zeros({1}));
  torch::optim::SGD optimizer{std::vector<at::Tensor>{weight}, torch::optim::SGDOptions(1.0)};

  void give(const GradScaler& scaler, bool overflow) {
    weight.mutable_grad() = at::full({1}, overflow ? kInf : static_cast<float>(scaler.value()));
  }
};

TEST(GradScaler, FollowsTorchsTraceOfOverflows) {
  const GoldenFile file = GoldenFile::open("14_amp_clip");
  const at::Tensor pattern = tensor(file, "overflow_pattern");
  GradScaler scaler(golden_options(file));
  OneWeight one;
  for (std::int64_t step = 0; step < pattern.numel(); ++step) {
    const bool overflow = pattern[step].item<std::int64_t>() != 0;
    one.give(scaler, overflow);
    EXPECT_EQ(scaler.step(one.optimizer), !overflow);
    scaler.update();
    EXPECT_EQ(scaler.value(), tensor(file, "scale_after")[step].item<double>()) << step;
    EXPECT_EQ(one.weight.item<double>(), tensor(file, "sgd_w_after")[step].item<double>()) << step;
  }
  EXPECT_EQ(scaler.skipped_steps(), 3U);
}

TEST(GradScaler, UnscalesBeforeClippingAsInTheGoldenFile) {
  const GoldenFile file = GoldenFile::open("14_amp_clip");
  std::vector<at::Tensor> weights;
  for (const char* name : {"scaled_grad0", "scaled_grad1"}) {
    const at::Tensor gradient = tensor(file, name);
    weights.push_back(leaf(at::zeros(gradient.sizes())));
    weights.back().mutable_grad() = gradient;
  }
  OptimizerConfig in_place;
  in_place.state = StateDevice::kNone;
  const auto optimizer = wrap(std::make_unique<torch::optim::SGD>(weights, torch::optim::SGDOptions(1.0)), in_place);
  GradScaler scaler(golden_options(file));
  scaler.unscale_(*optimizer);
  EXPECT_TRUE(weights[0].grad().equal(tensor(file, "grad0")));  // A power of two: exactly.
  EXPECT_TRUE(weights[1].grad().equal(tensor(file, "grad1")));
  EXPECT_NEAR(optimizer->clip_grad_norm_(scalar(file, "max_norm")), scalar(file, "total_norm"), 1e-12);
  EXPECT_TRUE(weights[0].grad().allclose(tensor(file, "clipped0").to(at::kFloat), 1e-6, 0));
  EXPECT_TRUE(weights[1].grad().allclose(tensor(file, "clipped1").to(at::kFloat), 1e-6, 0));
  EXPECT_FALSE(weights[0].grad().allclose(tensor(file, "WRONG_clip_before_unscale0").to(at::kFloat), 1e-3, 0));
  EXPECT_TRUE(scaler.step(*optimizer));  // Does not unscale again.
  EXPECT_TRUE(weights[0].equal(weights[0].grad().neg()));
}

TEST(GradScaler, SkipsOnAllRanksWhatOverflowsOnOne) {
  constexpr int kRanks = 3;
  const auto ends = distributed::make_thread_group(kRanks, std::chrono::seconds(30));
  std::vector<double> weights(kRanks), scales(kRanks);
  std::vector<std::uint64_t> skipped(kRanks);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        LossScaleOptions options;
        options.init_scale = 1024.0;
        GradScaler scaler(options, ends[rank].get());
        OneWeight one;
        for (int step = 0; step < 4; ++step) {
          one.give(scaler, step == 1 && rank == 1);
          scaler.step(one.optimizer);
          scaler.update();
        }
        weights[rank] = one.weight.item<double>();
        scales[rank] = scaler.value();
        skipped[rank] = scaler.skipped_steps();
      });
    }
  }
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(weights[rank], -3.0);
    EXPECT_EQ(scales[rank], 512.0);
    EXPECT_EQ(skipped[rank], 1U);
  }
}

TEST_F(Wrapped, AnOverflowInOneGradientLeavesWeightsAndStateAsTheyWere) {
  start(adamw());
  step_both(3);
  GradScaler scaler;
  gradients_.give(weights_, 3);
  for (const Tensors& group : weights_) {  // Unscaling changes gradients in place, and these are shared.
    for (const at::Tensor& weight : group) {
      if (weight.grad().defined()) weight.mutable_grad() = weight.grad().clone();
    }
  }
  weights_[1][0].mutable_grad()[4][2][1] = std::numeric_limits<float>::quiet_NaN();
  const TensorGroups before = clone(weights_);
  EXPECT_FALSE(scaler.step(*optimizer_));
  scaler.update();
  EXPECT_EQ(differences(weights_, before), "");
  EXPECT_EQ(scaler.value(), 32768.0);
  step_both(3);  // Nothing of it is left in the state.
  expect_equal();
}

TEST(GradScaler, TakesGradientsOfSeveralTypesAndScalesALossInFloat32) {
  std::vector<at::Tensor> weights;
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    weights.push_back(leaf(at::zeros({3}, dtype)));
    weights.back().mutable_grad() = at::full({3}, 8.0, dtype);
  }
  torch::optim::SGD optimizer(weights, torch::optim::SGDOptions(1.0));
  LossScaleOptions options;
  options.init_scale = 4.0;
  GradScaler scaler(options);
  scaler.unscale_(optimizer);
  for (const at::Tensor& weight : weights) EXPECT_EQ(weight.grad()[2].item<double>(), 2.0);
  options.init_scale = 65536.0;
  const at::Tensor scaled = GradScaler(options).scale(at::full({}, 1000.0, at::kHalf));
  EXPECT_EQ(scaled.scalar_type(), at::kFloat);
  EXPECT_EQ(scaled.item<double>(), 65536000.0);
}

TEST(GradScaler, RefusesCallsOutOfOrder) {
  GradScaler scaler;
  EXPECT_THROW(scaler.update(), Error);
  OneWeight one;
  one.give(scaler, false);
  scaler.unscale_(one.optimizer);
  EXPECT_THROW(scaler.unscale_(one.optimizer), Error);
  scaler.step(one.optimizer);
  EXPECT_THROW(scaler.step(one.optimizer), Error);
  EXPECT_EQ(one.weight.item<double>(), -1.0);
  scaler.update();
}

}  // namespace
}  // namespace spillway::test::grad_scaler_test

// Steps that are not made: what they leave as it was, what they read in vain, and how it is found out why.
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include <spillway/optimizer/grad_scaler.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>
#include <support/temp_dir.hpp>

namespace spillway::test::skipped_step_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<at::Tensor> leaves(int count, at::ScalarType type) {
  std::vector<at::Tensor> made;
  for (int i = 0; i < count; ++i) made.push_back(at::full({2048}, 1.0, type).requires_grad_());
  return made;
}

void backward(const std::vector<at::Tensor>& weights, const at::Tensor& factors) {
  at::Tensor loss = at::full({}, 0.0);
  for (const at::Tensor& weight : weights) loss = loss + (weight.to(at::kFloat) * factors).sum();
  loss.backward();
}

/// Adam over more blocks than there are staging buffers.
std::unique_ptr<Optimizer> streamed(const std::vector<at::Tensor>& weights, const TempDir& folder,
                                    OptimizerConfig config = {}) {
  config.state = StateDevice::kNvme;
  config.nvme_path = folder.path();
  config.sub_group_numel = 2048;
  config.bucket_bytes = 8192;
  config.host_bytes = 5 * (3 * 2048 * 4 + 4096);
  config.tiers_options.log = [](const std::string&) {};
  return wrap(std::make_unique<torch::optim::Adam>(weights, torch::optim::AdamOptions(1e-2)), std::move(config));
}

std::uint64_t read_bytes(const Optimizer& optimizer) { return optimizer.tiers()->stats().read_bytes; }

TEST(SkippedStep, ReadsInVainWhatItSaysAndTheNextOneReadsAll) {
  const TempDir folder;
  const std::vector<at::Tensor> weights = leaves(12, at::kFloat);
  const auto optimizer = streamed(weights, folder);
  const at::Tensor factors = at::full({2048}, 0.5);
  EXPECT_GT(optimizer->placement().disk_bytes, optimizer->read_ahead_bytes());
  EXPECT_GT(optimizer->read_ahead_bytes(), 0U);
  backward(weights, factors);
  optimizer->step();
  for (int round = 0; round < 3; ++round) {
    const at::Tensor before = weights[3].detach().clone();
    std::uint64_t read = read_bytes(*optimizer);
    optimizer->prefetch();
    optimizer->skip_step();
    EXPECT_EQ(read_bytes(*optimizer) - read, optimizer->read_ahead_bytes());
    EXPECT_TRUE(weights[3].equal(before));

    read = read_bytes(*optimizer);
    optimizer->prefetch();
    optimizer->step();
    EXPECT_EQ(read_bytes(*optimizer) - read, optimizer->steady_step_bytes().read);
    EXPECT_FALSE(weights[3].equal(before));
  }
}

TEST(SkippedStep, FindsTheFirstGradientThatIsNotFiniteAfterClippingWhereverGradientsAre) {
  for (const GradientDevice device : {GradientDevice::kInPlace, GradientDevice::kCpu, GradientDevice::kNvme}) {
    const TempDir folder;
    const std::vector<at::Tensor> weights = leaves(4, at::kFloat);
    OptimizerConfig config;
    config.gradients = device;
    const auto optimizer = streamed(weights, folder, std::move(config));
    backward(weights, at::full({2048}, 0.5));
    EXPECT_TRUE(std::isfinite(optimizer->clip_grad_norm_(1.0)));
    EXPECT_FALSE(optimizer->find_non_finite_gradient().defined());
    optimizer->skip_step();
    for (const at::Tensor& weight : weights) weight.mutable_grad().reset();

    const at::Tensor factors = at::full({2048}, 0.5);
    factors[77] = std::numeric_limits<double>::quiet_NaN();
    backward({weights[0]}, at::full({2048}, 0.5));
    backward({weights[2], weights[3]}, factors);
    EXPECT_TRUE(std::isnan(optimizer->clip_grad_norm_(1.0)));
    EXPECT_TRUE(optimizer->find_non_finite_gradient().is_same(weights[2]));
  }
}

TEST(SkippedStep, OfAScalerLeavesMasterAndWeightAndGoesOn) {
  const TempDir folder;
  const std::vector<at::Tensor> weights = leaves(6, at::kHalf);
  OptimizerConfig config;
  config.kernels = UpdateKernels::kFused;
  config.masters = MasterFormat::kFloat32;
  config.gradients = GradientDevice::kCpu;
  const auto optimizer = streamed(weights, folder, std::move(config));
  GradScaler scaler;
  const auto attempt = [&](double factor) {
    optimizer->prefetch();
    backward(weights, at::full({2048}, factor));
    scaler.unscale_(*optimizer);
    const bool taken = scaler.step(*optimizer);
    scaler.update();
    return taken;
  };
  EXPECT_FALSE(attempt(kInfinity));
  EXPECT_EQ(scaler.value(), 32768.0);
  EXPECT_EQ(weights[5].min().item<double>(), 1.0);
  EXPECT_TRUE(attempt(1.0));
  EXPECT_LT(weights[5].max().item<double>(), 1.0);
}

TEST(Masters, AreShownOnceInEachStepAsTheyAreBeforeTheirRounding) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const TempDir folder;
    const std::vector<at::Tensor> weights = leaves(6, type);
    const at::Tensor wide = at::full({2048}, 1.0).requires_grad_();
    std::vector<at::Tensor> all = weights;
    all.push_back(wide);
    OptimizerConfig config;
    config.kernels = UpdateKernels::kFused;
    config.masters = MasterFormat::kRemainder;
    const auto optimizer = streamed(all, folder, std::move(config));
    std::map<const c10::TensorImpl*, at::Tensor> seen;
    optimizer->observe_masters([&](const at::Tensor& parameter, const at::Tensor& master) {
      EXPECT_TRUE(seen.emplace(parameter.unsafeGetTensorImpl(), master.clone()).second);
    });
    for (int step = 0; step < 2; ++step) {
      seen.clear();
      backward(all, at::randn({2048}));
      optimizer->step();
      ASSERT_EQ(seen.size(), weights.size()) << "a float32 parameter has no master";
      for (const at::Tensor& weight : weights) {
        const at::Tensor& master = seen.at(weight.unsafeGetTensorImpl());
        EXPECT_EQ(master.scalar_type(), at::kFloat);
        // A remainder is signed, so that ties go up and not to even: a unit in the last place may lie between.
        EXPECT_LT((master - weight.to(at::kFloat)).abs().max().item<float>(), type == at::kHalf ? 0x1p-11 : 0x1.01p-8);
        EXPECT_FALSE(master.equal(weight.to(at::kFloat)));
      }
    }
  }
}

}  // namespace
}  // namespace spillway::test::skipped_step_test

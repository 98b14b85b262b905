// What went wrong in other implementations of sharded and offloaded gradients: each with kernels and without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <sstream>
#include <string_view>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <spillway/offload/error.hpp>

#include "optimizer/sharded_fixture.hpp"

namespace spillway::test::sharded_known_faults_test {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

at::Tensor random(at::IntArrayRef sizes, std::uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kFloat));
}

at::Tensor leaf(at::IntArrayRef sizes, std::uint64_t seed) { return random(sizes, seed).requires_grad_(); }

class ShardedFaults : public ::testing::TestWithParam<UpdateKernels> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  static OptimizerConfig config(const Rank& rank, GradientDevice gradients = GradientDevice::kCpu,
                                StateDevice state = StateDevice::kCpu) {
    OptimizerConfig config = rank.config(gradients, state);
    config.kernels = GetParam();
    return config;
  }
  // As the plain optimizer: its bits, or with kernels its numbers, to a ten-thousandth of a step: where gradients
  // nearly cancel, Adam makes a step out of what rounding left of them.
  static void expect_same(const Tensors& got, const Tensors& plain) {
    if (GetParam() == UpdateKernels::kLibTorch) {
      EXPECT_EQ(differences({got}, {plain}), "");
      return;
    }
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(got[i].allclose(plain[i], 1e-5, 1e-5)) << i << ": " << (got[i] - plain[i]).abs().max();
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, ShardedFaults, ::testing::Values(UpdateKernels::kLibTorch, UpdateKernels::kFused));

// Offloading and accumulation did not go together: 1, 2, 4 and 8 micro-batches are one batch.
TEST_P(ShardedFaults, AccumulationOnEveryTierIsOneLargeBatch) {
  const at::Tensor rows = random({8, 40}, 1);
  const auto loss_of = [&](const at::Tensor& weight, std::int64_t first, std::int64_t count) {
    return rows.narrow(0, first, count).matmul(weight).square().mean();
  };
  const at::Tensor start = random({40, 600}, 2);
  at::Tensor large = start.to(at::kDouble).requires_grad_();
  rows.to(at::kDouble).matmul(large).square().mean().backward();
  const at::Tensor wanted = large.grad();
  for (const GradientDevice device : {GradientDevice::kCpu, GradientDevice::kNvme}) {
    for (const std::int64_t micro_batches : {1, 2, 4, 8}) {
      with_ranks(1, [&](Rank& rank) {
        // From zero, so that the weight after a step of rate 1 is the gradient.
        const Tensors weights{start.clone().requires_grad_()};
        const auto optimizer = rank.sgd(weights, 1.0, config(rank, device));
        const std::int64_t size = 8 / micro_batches;
        for (std::int64_t m = 0; m < micro_batches; ++m) {
          (loss_of(weights[0], m * size, size) / micro_batches).backward();
        }
        weights[0].set_data(at::zeros({40, 600}));
        optimizer->step();
        const double error = (weights[0].detach().to(at::kDouble) + wanted).norm().item<double>();
        EXPECT_LE(error, 1e-6 * wanted.norm().item<double>()) << micro_batches;
      });
    }
  }
}

// Gradients in 16 bits were added up in 16 bits.
TEST_P(ShardedFaults, NarrowGradientsAreAddedUpInFloat32) {
  const at::Tensor start = at::zeros({5000}, at::kBFloat16);
  std::vector<at::Tensor> gradients;
  at::Tensor exact = at::zeros({5000}, at::kDouble);
  at::Tensor narrow = start.clone();
  for (std::uint64_t m = 0; m < 64; ++m) {
    gradients.push_back(random({5000}, m).abs().mul(1e-3).to(at::kBFloat16));
    exact += gradients.back();
    narrow += gradients.back();
  }
  const double norm = exact.norm().item<double>();
  EXPECT_GT((narrow.to(at::kDouble) - exact).norm().item<double>(), 1e-3 * norm);  // What is to be avoided.
  with_ranks(2, [&](Rank& rank) {
    const Tensors weights{start.clone().requires_grad_()};
    OptimizerConfig with_masters = config(rank);
    with_masters.masters = GetParam() == UpdateKernels::kFused ? MasterFormat::kFloat32 : MasterFormat::kNone;
    const auto optimizer = rank.sgd(weights, 1.0, with_masters);
    for (std::size_t m = 0; m < 32; ++m) {
      (weights[0] * gradients[2 * m + static_cast<std::size_t>(rank.number)]).sum().backward();
    }
    EXPECT_NEAR(2.0 * optimizer->clip_grad_norm_(1e9), norm, 1e-6 * norm);
    optimizer->step();
    if (GetParam() == UpdateKernels::kFused) {
      std::stringstream stream;
      torch::save(static_cast<const torch::optim::Optimizer&>(*optimizer), stream);
      torch::serialize::InputArchive archive;
      archive.load_from(stream);
      torch::serialize::InputArchive masters;
      archive.read("masters", masters);
      at::Tensor master;
      masters.read("0/0", master, /*is_buffer=*/true);
      EXPECT_LE((master.to(at::kDouble) * -2.0 - exact).norm().item<double>(), 1e-6 * norm);
    }
  });
}

// A branch that one rank did not use made the norm fail, or the ranks wait for each other.
TEST_P(ShardedFaults, ABranchThatOneRankDoesNotUseIsTrainedByTheOthers) {
  const Tensors plain{leaf({100}, 1), leaf({40'000}, 2), leaf({30}, 3)};
  torch::optim::AdamW other(plain, torch::optim::AdamWOptions(0.1));
  const auto loss_of = [](const Tensors& weights, bool branch) {
    at::Tensor loss = weights[0].square().sum();
    return branch ? loss + weights[1].square().sum() : loss;
  };
  for (int step = 0; step < 3; ++step) {
    ((loss_of(plain, true) + loss_of(plain, false)) / 2).backward();
    other.step();
    other.zero_grad();
  }
  for (const bool clips : {true, false}) {
    with_ranks(2, [&](Rank& rank) {
      const Tensors weights{leaf({100}, 1), leaf({40'000}, 2), leaf({30}, 3)};
      const auto optimizer = rank.adamw(weights, config(rank));
      for (int step = 0; step < 3; ++step) {
        loss_of(weights, rank.number == 0).backward();
        if (clips) {
          EXPECT_GT(optimizer->clip_grad_norm_(std::numeric_limits<double>::infinity()), 0.0);
        }
        optimizer->step();
      }
      expect_same(weights, plain);
      EXPECT_TRUE(bit_equal(weights[2], random({30}, 3)));  // Used by none: not decayed either.
    });
  }
}

// Parameters without elements were refused, or divided by.
TEST_P(ShardedFaults, ParametersWithoutElementsAreTakenOnEveryTier) {
  for (const GradientDevice gradients : {GradientDevice::kCpu, GradientDevice::kNvme}) {
    for (const StateDevice state : {StateDevice::kCpu, StateDevice::kNvme}) {
      with_ranks(2, [&](Rank& rank) {
        const auto make = [] { return Tensors{leaf({0}, 1), leaf({3, 0, 2}, 2), leaf({5}, 3), leaf({0}, 4)}; };
        const Tensors weights = make();
        OptimizerConfig where = config(rank, gradients, state);
        where.bucket_bytes = 1;  // Buckets, and blocks, of nothing.
        const auto optimizer = rank.adamw(weights, where);
        for (int step = 0; step < 2; ++step) {
          at::Tensor loss = at::zeros({});
          for (const at::Tensor& weight : weights) loss = loss + weight.square().sum();
          loss.backward();
          optimizer->clip_grad_norm_(1.0);
          optimizer->step();
        }
        EXPECT_FALSE(bit_equal(weights[2], random({5}, 3)));
        std::stringstream archive;
        torch::save(static_cast<const torch::optim::Optimizer&>(*optimizer), archive);
        const Tensors other = make();
        torch::optim::AdamW plain(other, torch::optim::AdamWOptions(0.1));
        torch::load(plain, archive);
        EXPECT_EQ(
            static_cast<const torch::optim::AdamWParamState&>(*plain.state().at(other[2].unsafeGetTensorImpl())).step(),
            2);
      });
    }
  }
}

// A tied weight was reduced twice, or had a mirror for each of its names.
TEST_P(ShardedFaults, ATiedWeightHasOneStateAndItsGradientsAreAddedOnce) {
  const auto loss_of = [](const Tensors& weights) {  // An embedding that is the head as well: 25,000 elements, cut.
    const at::Tensor hidden = weights[0].narrow(0, 3, 20).matmul(weights[1]);
    return hidden.matmul(weights[0].t()).square().mean();
  };
  const auto make = [] { return Tensors{leaf({500, 50}, 1), leaf({50, 50}, 2)}; };
  const Tensors plain = make();
  torch::optim::AdamW other(plain, torch::optim::AdamWOptions(0.1));
  for (int step = 0; step < 3; ++step) {
    loss_of(plain).backward();
    other.step();
    other.zero_grad();
  }
  std::atomic<std::uint64_t> state_bytes = 0;
  with_ranks(2, [&](Rank& rank) {
    const Tensors weights = make();
    const auto optimizer = rank.adamw(weights, config(rank));
    state_bytes += optimizer->placement().state_bytes;
    for (int step = 0; step < 3; ++step) {
      loss_of(weights).backward();
      optimizer->step();
    }
    expect_same(weights, plain);
  });
  EXPECT_EQ(state_bytes, 8U * (500 * 50 + 50 * 50));
}

// The scale stuck at its smallest value, and steps were skipped for ever; sharded and unsharded runs differed.
TEST_P(ShardedFaults, TheScaleFollowsAScriptOfOverflowsWhoeverHasThem) {
  constexpr std::string_view kScript = "x..x....xx.";
  const optimizer::LossScaleOptions options{.init_scale = 1024.0, .growth_interval = 3};
  optimizer::LossScale scale(options);
  std::vector<double> wanted;
  for (const char step : kScript) {
    scale.update(step == 'x');
    wanted.push_back(scale.value());
  }
  with_ranks(2, [&](Rank& rank) {
    const Tensors weights{leaf({20'000}, 1), leaf({7}, 2)};
    const auto optimizer = rank.adamw(weights, config(rank));
    GradScaler scaler(options);
    std::vector<double> trace;
    for (std::size_t step = 0; step < kScript.size(); ++step) {
      const at::Tensor before = weights[0].detach().clone();
      at::Tensor loss = weights[0].square().mean() + weights[1].square().mean();
      if (kScript[step] == 'x' && static_cast<int>(step % 2) == rank.number) {
        loss = loss * std::numeric_limits<float>::infinity();
      }
      scaler.scale(loss).backward();
      EXPECT_EQ(scaler.step(*optimizer), kScript[step] != 'x');
      EXPECT_EQ(bit_equal(weights[0], before), kScript[step] == 'x');
      scaler.update();
      trace.push_back(scaler.value());
    }
    EXPECT_THAT(trace, ElementsAreArray(wanted));
    GradScaler hopeless({.init_scale = 1.0, .min_scale = 1.0, .overflows_at_min_max = 2});
    for (int overflow = 1; overflow <= 2; ++overflow) {
      (weights[1].sum() * std::numeric_limits<float>::infinity()).backward();
      EXPECT_FALSE(hopeless.step(*optimizer));
      EXPECT_EQ(message_of([&] { hopeless.update(); }).empty(), overflow == 1);
    }
  });
}

// The check for overflows was a pass of its own, longer than the step: here it is that of the norm.
TEST_P(ShardedFaults, OverflowCheckAndNormTakeOnePassOverTheSums) {
  with_ranks(1, [](Rank& rank) {
    Tensors weights;
    for (std::uint64_t i = 0; i < 6; ++i) {
      weights.push_back(leaf({1024}, i));
    }
    OptimizerConfig where = config(rank, GradientDevice::kNvme);
    where.bucket_bytes = 4096;
    const auto optimizer = rank.adamw(weights, where);
    const offload::Stats& stats = optimizer->tiers()->stats();
    constexpr std::uint64_t kAll = 6 * 4096;
    GradScaler scaler({.init_scale = 4.0});
    at::Tensor loss = at::zeros({});
    for (const at::Tensor& weight : weights) loss = loss + weight.square().sum();
    const std::uint64_t read = stats.read_bytes;
    scaler.scale(loss).backward();
    scaler.unscale_(*optimizer);
    EXPECT_GT(optimizer->clip_grad_norm_(std::numeric_limits<double>::infinity()), 1.0);
    EXPECT_TRUE(scaler.step(*optimizer));
    EXPECT_EQ(stats.read_bytes - read, 2 * kAll);  // Once to measure, once to update.
  });
}

}  // namespace
}  // namespace spillway::test::sharded_known_faults_test

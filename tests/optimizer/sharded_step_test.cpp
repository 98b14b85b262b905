// What a step over shards does, rank by rank.
#include <atomic>
#include <cmath>
#include <limits>
#include <sstream>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/serialize.h>

#include <spillway/offload/error.hpp>

#include "optimizer/sharded_fixture.hpp"

namespace spillway::test::sharded_step_test {
namespace {

using ::testing::HasSubstr;

at::Tensor leaf(at::IntArrayRef sizes, double value = 1.0) {
  return at::full(sizes, value, at::kFloat).requires_grad_();
}

// Gives `parameter` the gradient `value` in every element.
void backward(const at::Tensor& parameter, double value) { (parameter * value).sum().backward(); }

TEST(ShardedStep, ClipsOverShardsOnHostAndDiskAndGivesTheNormOfAll) {
  with_ranks(2, [](Rank& rank) {
    Tensors weights;  // More of them than there are staging buffers, each in a bucket of its own.
    for (int i = 0; i < 6; ++i) {
      weights.push_back(leaf({1024}, 0.0));
    }
    OptimizerConfig config = rank.config(rank.number == 0 ? GradientDevice::kNvme : GradientDevice::kCpu);
    config.bucket_bytes = 4096;
    const auto optimizer = rank.sgd(weights, 1.0, config);
    EXPECT_EQ(optimizer->gradient_placement().disk_bytes > 0, rank.number == 0);
    EXPECT_EQ(optimizer->gradient_placement().owned_numel, 3 * 1024U);
    (weights[0][3] * 6.0).backward();
    (weights[1][5] * 8.0).backward();
    EXPECT_EQ(optimizer->clip_grad_norm_(1.0), 10.0);
    optimizer->step();
    const auto factor = static_cast<float>(1.0 / (10.0 + 1e-6));
    EXPECT_EQ(weights[0][3].item<float>(), -(6.0F * factor));
    EXPECT_EQ(weights[1][5].item<float>(), -(8.0F * factor));
  });
}

TEST(ShardedStep, LimitsElementsOnAllShards) {
  with_ranks(2, [](Rank& rank) {
    const Tensors weights{leaf({2}, 0.0), leaf({3}, 0.0)};
    const auto optimizer = rank.sgd(weights, 1.0, rank.config());
    backward(weights[0], -6.0);
    backward(weights[1], 0.25);
    optimizer->clip_grad_value_(0.5);
    optimizer->step();
    EXPECT_EQ(weights[0][1].item<float>(), 0.5F);
    EXPECT_EQ(weights[1][1].item<float>(), -0.25F);
  });
}

TEST(ShardedStep, IsSkippedOnAllRanksWhenOneSeesAnInfiniteGradient) {
  with_ranks(3, [](Rank& rank) {
    const Tensors weights{leaf({40}), leaf({7}), leaf({5})};
    const auto optimizer = rank.adamw(weights, rank.config(GradientDevice::kNvme, StateDevice::kNvme));
    GradScaler scaler({.init_scale = 1024.0});
    const auto train = [&](bool overflow) {
      at::Tensor loss = (weights[0] * 2).sum() + weights[1].sum() * weights[2].sum();
      scaler.scale(overflow ? loss * std::numeric_limits<float>::infinity() : loss).backward();
      const bool taken = scaler.step(*optimizer);
      scaler.update();
      return taken;
    };
    const auto before = std::chrono::steady_clock::now();
    EXPECT_FALSE(train(rank.number == 1));
    EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(1));
    EXPECT_EQ(scaler.value(), 512.0);
    EXPECT_EQ(scaler.skipped_steps(), 1U);
    for (const at::Tensor& weight : weights) {
      EXPECT_TRUE(bit_equal(weight, at::ones(weight.sizes())));
    }
    // The next step starts from zero moments: AdamW's first step moves by the rate, decay aside.
    EXPECT_TRUE(train(false));
    EXPECT_EQ(scaler.value(), 512.0);
    EXPECT_NEAR(weights[0][3].item<float>(), 1.0F - 0.1F * 0.01F - 0.1F, 1e-5);
  });
}

TEST(ShardedStep, FindsOverflowsBeforeUnscalingAsPyTorchDoes) {
  with_ranks(2, [](Rank& rank) {
    const Tensors weights{leaf({1}), leaf({1})};
    const auto optimizer = rank.sgd(weights, 0.0, rank.config());
    if (rank.number == 0) {
      backward(weights[0], 3e38);
    }
    EXPECT_FALSE(optimizer->unscale_gradients(4.0));  // The product is infinite, the gradient is not.
    optimizer->zero_grad();
    backward(weights[0], rank.number == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0);
    EXPECT_TRUE(optimizer->unscale_gradients(0.5));
  });
}

TEST(ShardedStep, KeepsStateForWhatARankOwnsAlone) {
  std::atomic<std::uint64_t> state_bytes = 0;
  std::atomic<std::uint64_t> owned = 0;
  with_ranks(3, [&](Rank& rank) {
    const Tensors weights{leaf({40}), leaf({7}), leaf({5}), leaf({33}), at::ones({100})};  // The last is frozen.
    OptimizerConfig config = rank.config();
    config.shard_weights = {1.0, 2.0, 0.0};
    const auto optimizer = rank.adamw(weights, config);
    backward(weights[0], 1.0);
    optimizer->step();
    state_bytes += optimizer->placement().state_bytes;
    owned += optimizer->gradient_placement().owned_numel;
    EXPECT_EQ(optimizer->gradient_placement().owned_numel == 0, rank.number == 2);
  });
  EXPECT_EQ(state_bytes, (40U + 7U + 5U + 33U) * 2 * sizeof(float));
  EXPECT_EQ(owned, 185U);
}

TEST(ShardedStep, TrainsAParameterThatIsUnfrozenOrAddedLater) {
  with_ranks(2, [](Rank& rank) {
    Tensors weights{leaf({3}), at::ones({4})};
    const auto optimizer = rank.sgd(weights, 0.5, rank.config());
    backward(weights[0], 1.0);
    optimizer->step();
    weights[1].requires_grad_();
    backward(weights[1], 1.0);
    optimizer->step();
    EXPECT_EQ(weights[1][0].item<float>(), 0.5F);
    const at::Tensor added = leaf({5});
    optimizer->add_param_group(torch::optim::OptimizerParamGroup({added}));
    backward(added, 1.0);
    backward(weights[0], 1.0);
    optimizer->step();
    EXPECT_EQ(added[4].item<float>(), 0.5F);
    EXPECT_EQ(weights[0][0].item<float>(), 0.0F);
    EXPECT_EQ(weights[1][0].item<float>(), 0.5F);
  });
}

TEST(ShardedStep, LeavesAParameterAloneThatNoRankUses) {
  with_ranks(2, [](Rank& rank) {
    const Tensors weights{leaf({3}), leaf({4})};
    const auto optimizer = rank.adamw(weights, rank.config());
    if (rank.number == 0) {
      backward(weights[0], 1.0);  // Rank 1 does not even run a backward pass.
    }
    optimizer->step();
    EXPECT_LT(weights[0][0].item<float>(), 1.0F);
    EXPECT_TRUE(bit_equal(weights[1], at::ones({4})));  // Not decayed.
  });
}

TEST(ShardedStep, TakesWhatZeroGradWasToldToKeepAsZeros) {
  for (const bool set_to_none : {true, false}) {
    const Tensors plain_weights{leaf({3})};
    torch::optim::AdamW plain(plain_weights, torch::optim::AdamWOptions(0.1));
    backward(plain_weights[0], 1.0);
    plain.step();
    plain.zero_grad(set_to_none);
    plain.step();
    with_ranks(2, [&](Rank& rank) {
      const Tensors weights{leaf({3})};
      const auto optimizer = rank.adamw(weights, rank.config());
      backward(weights[0], 1.0);
      optimizer->step();
      optimizer->zero_grad(set_to_none);
      optimizer->step();
      EXPECT_TRUE(bit_equal(weights[0], plain_weights[0])) << set_to_none;
    });
  }
}

TEST(ShardedStep, DropsGradientsThatZeroGradComesBefore) {
  with_ranks(2, [](Rank& rank) {
    const Tensors weights{leaf({3})};
    const auto optimizer = rank.sgd(weights, 1.0, rank.config());
    backward(weights[0], 100.0);
    optimizer->zero_grad();
    backward(weights[0], 0.25);
    optimizer->step();
    EXPECT_EQ(weights[0][1].item<float>(), 0.75F);
  });
}

TEST(ShardedStep, AddsNarrowGradientsInFloat32) {
  with_ranks(1, [](Rank& rank) {
    const Tensors weights{at::zeros({8}, at::kBFloat16).requires_grad_()};
    OptimizerConfig config = rank.config();
    const auto optimizer = rank.sgd(weights, 1.0, config);
    const double gradient = at::full({}, 1e-3, at::kBFloat16).item<double>();
    for (int micro = 0; micro < 64; ++micro) {
      (weights[0] * 1e-3).sum().backward();
    }
    const double norm = optimizer->clip_grad_norm_(1e9);
    EXPECT_NEAR(norm / (64 * gradient * std::sqrt(8.0)), 1.0, 1e-6);
  });
}

TEST(ShardedStep, MovesEachSumOnceForEachRoundAndOnceForTheStep) {
  with_ranks(1, [](Rank& rank) {
    Tensors weights;
    for (int i = 0; i < 6; ++i) {
      weights.push_back(leaf({1024}));  // A page, and a bucket, each.
    }
    OptimizerConfig config = rank.config(GradientDevice::kNvme);
    config.bucket_bytes = 4096;
    const auto optimizer = rank.sgd(weights, 0.1, config);
    const offload::Stats& stats = optimizer->tiers()->stats();
    constexpr std::uint64_t kAll = 6 * 4096;
    EXPECT_EQ(optimizer->gradient_placement().disk_bytes, kAll);
    EXPECT_EQ(optimizer->gradient_placement().host_bytes, 2 * 4096U);
    for (int step = 0; step < 2; ++step) {
      const std::uint64_t read = stats.read_bytes;
      const std::uint64_t written = stats.written_bytes;
      for (int micro = 0; micro < 3; ++micro) {
        at::Tensor loss = at::zeros({});
        for (const at::Tensor& weight : weights) loss = loss + (weight * weight).sum();
        loss.backward();
      }
      optimizer->step();
      EXPECT_EQ(stats.written_bytes - written, 3 * kAll);
      EXPECT_EQ(stats.read_bytes - read, 3 * kAll);  // By the second and third round, and by the step.
      optimizer->zero_grad();
    }
  });
}

TEST(ShardedStep, CallsTheClosureOnceAndTakesItsGradients) {
  with_ranks(2, [](Rank& rank) {
    const Tensors weights{leaf({3})};
    const auto optimizer = rank.sgd(weights, 1.0, rank.config());
    int calls = 0;
    const at::Tensor loss = optimizer->step([&] {
      ++calls;
      at::Tensor value = (weights[0] * (rank.number + 1)).sum();
      value.backward();
      return value;
    });
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(loss.item<float>(), 3.0F * static_cast<float>(rank.number + 1));
    EXPECT_EQ(weights[0][0].item<float>(), 1.0F - 1.5F);
  });
}

TEST(ShardedStep, KeepsTiedParametersOnceAndStepsThemAsLibTorchDoes) {
  const auto make_weights = [] {
    const at::Tensor tied = leaf({4});
    return Tensors{tied, leaf({3}), tied};
  };
  const Tensors plain_weights = make_weights();
  torch::optim::SGD plain(plain_weights, torch::optim::SGDOptions(0.5).momentum(0.9));
  (plain_weights[0] * plain_weights[2]).sum().backward();
  plain.step();
  with_ranks(2, [&](Rank& rank) {
    const Tensors weights = make_weights();
    const auto optimizer =
        wrap(std::make_unique<torch::optim::SGD>(weights, torch::optim::SGDOptions(0.5).momentum(0.9)), rank.config());
    (weights[0] * weights[2]).sum().backward();
    optimizer->step();
    EXPECT_TRUE(bit_equal(weights[0], plain_weights[0]));
  });
}

// Weights and state after some steps, then an archive, then more steps on whatever the archive was loaded into.
TEST(ShardedStep, ItsArchiveIsThatOfAPlainOptimizerOnEveryRank) {
  at::set_num_threads(1);
  for (const Recipe& recipe : one_of_each_kind()) {
    SCOPED_TRACE(recipe.name);
    const Gradients gradients(512);
    const auto step = [&](torch::optim::Optimizer& optimizer, const TensorGroups& weights, std::int64_t number) {
      gradients.give(weights, number);
      at::Tensor loss = at::zeros({});
      for (const Tensors& group : weights) {
        for (const at::Tensor& weight : group) {
          if (weight.grad().defined()) {
            const at::Tensor coefficients = weight.grad().clone();
            weight.mutable_grad().reset();
            loss = loss + (weight * coefficients).sum();
          }
        }
      }
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
    };
    TensorGroups plain_weights = odd_parameters();
    auto plain = recipe.make(plain_weights);
    for (std::int64_t i = 0; i < 3; ++i) step(*plain, plain_weights, i);
    const TensorGroups middle = clone(plain_weights);
    for (std::int64_t i = 3; i < 6; ++i) step(*plain, plain_weights, i);
    with_ranks(2, [&](Rank& rank) {
      TensorGroups weights = odd_parameters();
      auto optimizer = wrap(recipe.make(weights), rank.config(GradientDevice::kCpu, StateDevice::kNvme));
      for (std::int64_t i = 0; i < 3; ++i) step(*optimizer, weights, i);
      EXPECT_EQ(differences(weights, middle), "");
      std::stringstream archive;
      torch::save(*static_cast<torch::optim::Optimizer*>(optimizer.get()), archive);
      std::stringstream copy(archive.str());
      // Into a plain optimizer, and into a sharded one that knows nothing yet.
      TensorGroups plain_copy = clone(middle);
      auto loaded = recipe.make(plain_copy);
      torch::load(*loaded, archive);
      optimizer.reset();
      TensorGroups other = clone(middle);
      auto sharded = wrap(recipe.make(other), rank.config());
      torch::load(*static_cast<torch::optim::Optimizer*>(sharded.get()), copy);
      for (std::int64_t i = 3; i < 6; ++i) {
        step(*loaded, plain_copy, i);
        step(*sharded, other, i);
      }
      EXPECT_EQ(differences(plain_copy, plain_weights), "");
      EXPECT_EQ(differences(other, plain_weights), "");
    });
  }
}

}  // namespace
}  // namespace spillway::test::sharded_step_test

// Fused kernels over gradients that are taken: they update from the float32 sums of all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <sstream>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/adamw.h>
#include <torch/serialize.h>

#include <spillway/offload/error.hpp>

#include "optimizer/fused_model.hpp"
#include "optimizer/sharded_fixture.hpp"

namespace spillway::test::sharded_fused_test {
namespace {

// Makes autograd give each parameter its gradient, exactly.
void backward(const TensorGroups& weights, const TensorGroups& gradients) {
  at::Tensor loss = at::zeros({});
  for (std::size_t g = 0; g < weights.size(); ++g) {
    for (std::size_t i = 0; i < weights[g].size(); ++i) {
      if (gradients[g][i].defined()) {
        loss = loss + (weights[g][i] * gradients[g][i]).sum().to(at::kFloat);
      }
    }
  }
  if (loss.requires_grad()) {
    loss.backward();
  }
}

// What is done with the sums before the update.
struct Limits {
  double inverse_scale = 1.0;
  std::optional<double> max_norm;
  std::optional<double> limit;
};

// The gradients that the update means: float32 as a `.grad` of that type would be. `norm` is what clipping has
// returned.
TensorGroups exact_gradients(const std::vector<TensorGroups>& terms, std::size_t world_size, const Limits& limits,
                             double norm) {
  TensorGroups sums = terms.front();
  for (std::size_t g = 0; g < sums.size(); ++g) {
    for (std::size_t i = 0; i < sums[g].size(); ++i) {
      at::Tensor sum;
      for (const TensorGroups& term : terms) {
        if (term[g][i].defined()) {
          const at::Tensor wide = term[g][i].to(term[g][i].scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
          sum = sum.defined() ? sum + wide : wide;
        }
      }
      if (sum.defined()) {
        sum = sum / static_cast<double>(world_size) * limits.inverse_scale;
        if (limits.max_norm) {
          sum = sum * std::min(1.0, *limits.max_norm / (norm + 1e-6));
        }
        sum = limits.limit ? sum.clamp(-*limits.limit, *limits.limit) : sum;
        sum = sum.to(at::kDouble);
      }
      sums[g][i] = sum;
    }
  }
  return sums;
}

Limits random_limits(Random& random) {
  Limits limits;
  limits.inverse_scale = random.chance(1, 2) ? 1.0 : 0.125;
  if (random.chance(1, 2)) {
    limits.max_norm = random.chance(1, 2) ? 0.1 : 1e4;
  }
  if (random.chance(1, 4)) {
    limits.limit = 0.0009765625;
  }
  return limits;
}

TEST(ShardedFused, UpdatesFromTheSumsOfAllRanksToFourUlp) {
  at::set_num_threads(1);
  for_random_seeds(16, [](Random& random) {
    const std::size_t world_size = random.between(1, 3);
    const std::size_t micro_batches = random.between(1, 3);
    const RandomModel model = random_model(random, {.tied = false});
    std::vector<std::vector<TensorGroups>> terms(3);  // By step, in the order in which they are added.
    std::vector<Limits> limits;
    for (std::vector<TensorGroups>& of_step : terms) {
      limits.push_back(random_limits(random));
      for (std::size_t t = 0; t < micro_batches * world_size; ++t) {
        of_step.push_back(random_gradients(model.weights, random));
      }
    }
    const bool on_disk = random.chance(1, 2);
    const std::uint64_t bucket_bytes = random.between(1, 5000);
    std::vector<std::vector<double>> errors(world_size);
    with_ranks(static_cast<int>(world_size), [&](Rank& rank) {
      const TensorGroups weights = clone(model.weights);
      OptimizerConfig config = on_disk ? rank.config(GradientDevice::kNvme, StateDevice::kNvme) : rank.config();
      config.kernels = UpdateKernels::kFused;
      config.bucket_bytes = bucket_bytes;
      const auto optimizer = wrap(model.recipe.make(weights), config);
      for (std::size_t step = 0; step < terms.size(); ++step) {
        for (std::size_t m = 0; m < micro_batches; ++m) {
          backward(weights, terms[step][m * world_size + static_cast<std::size_t>(rank.number)]);
        }
        if (limits[step].inverse_scale != 1.0) {
          EXPECT_FALSE(optimizer->unscale_gradients(limits[step].inverse_scale));
        }
        const double norm = limits[step].max_norm ? optimizer->clip_grad_norm_(*limits[step].max_norm) : 0.0;
        if (limits[step].limit) {
          optimizer->clip_grad_value_(*limits[step].limit);
        }
        const TensorGroups before = clone(weights);
        const TensorGroups exact =
            exact_step(*optimizer, model.recipe, weights, exact_gradients(terms[step], world_size, limits[step], norm));
        optimizer->step();
        errors[static_cast<std::size_t>(rank.number)].push_back(worst_ulps(before, weights, exact));
      }
    });
    for (const std::vector<double>& of_rank : errors) {
      EXPECT_THAT(of_rank, ::testing::Each(::testing::Le(kUlpBound))) << model.recipe.name;
    }
  });
}

using Shape = std::function<void(Optimizer&)>;

// What a loop does to gradients between backward and step, in orders that kernels know and in others.
std::vector<Shape> shapes() {
  const auto norm = [](Optimizer& optimizer) { optimizer.clip_grad_norm_(0.7); };
  const auto value = [](Optimizer& optimizer) { optimizer.clip_grad_value_(0.01); };
  return {[](Optimizer&) {}, norm, value,
          [=](Optimizer& optimizer) {
            norm(optimizer);
            value(optimizer);
          },
          [=](Optimizer& optimizer) {
            value(optimizer);
            norm(optimizer);
            optimizer.clip_grad_norm_(0.3);
            value(optimizer);
          }};
}

// Where gradients lie changes no bit: kernels round as LibTorch's operations on `.grad` do.
TEST(ShardedFused, GivesTheBitsOfGradientsInPlace) {
  for (const double loss_scale : {0.0, 1024.0, 1000.0}) {
    for (const Shape& shape : shapes()) {
      std::vector<Tensors> results;
      for (const GradientDevice gradients : {GradientDevice::kInPlace, GradientDevice::kCpu}) {
        at::manual_seed(5);
        const Tensors weights{at::randn({701}).requires_grad_(), at::randn({33, 5}).requires_grad_()};
        OptimizerConfig config;
        config.state = StateDevice::kCpu;
        config.gradients = gradients;
        config.kernels = UpdateKernels::kFused;
        config.tiers_options.log = [](const std::string&) {};
        const auto optimizer = wrap(std::make_unique<torch::optim::AdamW>(weights, 0.1), config);
        GradScaler scaler({.init_scale = loss_scale == 0.0 ? 1.0 : loss_scale});
        for (int step = 0; step < 4; ++step) {
          at::Tensor loss = at::zeros({});
          for (const at::Tensor& weight : weights) loss = loss + (weight * at::randn_like(weight)).sum();
          (loss_scale == 0.0 ? loss : scaler.scale(loss)).backward();
          if (loss_scale != 0.0) scaler.unscale_(*optimizer);
          shape(*optimizer);
          loss_scale == 0.0 ? static_cast<void>(optimizer->step()) : static_cast<void>(scaler.step(*optimizer));
          if (loss_scale != 0.0) scaler.update();
          optimizer->zero_grad();
        }
        results.push_back(clone({weights}).front());
      }
      for (std::size_t i = 0; i < results[0].size(); ++i) {
        EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << loss_scale << ", " << i;
      }
    }
  }
}

// One parameter that kernels update and one that they don't know, each on its owner.
TEST(ShardedFused, LeavesGradUndefinedWhoeverUpdates) {
  with_ranks(2, [](Rank& rank) {
    const Tensors weights{at::ones({300}).requires_grad_(), at::ones({7}, at::kDouble).requires_grad_()};
    OptimizerConfig config = rank.config();
    config.kernels = UpdateKernels::kFused;
    const auto optimizer = rank.adamw(weights, config);
    EXPECT_EQ(optimizer->placement().fused_parameters + optimizer->placement().other_parameters, 1U);
    for (int step = 0; step < 2; ++step) {
      backward({weights}, {{at::ones({300}), at::ones({7}, at::kDouble)}});
      optimizer->step();
      EXPECT_FALSE(weights[0].grad().defined() || weights[1].grad().defined());
    }
    EXPECT_LT(weights[0][299].item<float>(), 0.9F);
    EXPECT_LT(weights[1][6].item<double>(), 0.9);
  });
}

// One backward pass a step: gradients of 16 bits take half of the room and change no bit, however they are scaled; a
// second pass makes room for sums.
TEST(ShardedFused, KeepsNarrowGradientsAsTheyComeUntilOneIsAddedToAnother) {
  for (const UpdateKernels kernels : {UpdateKernels::kLibTorch, UpdateKernels::kFused}) {
    for (const GradientDevice device : {GradientDevice::kCpu, GradientDevice::kNvme}) {
      with_ranks(1, [&](Rank& rank) {
        std::vector<TensorGroups> weights;
        std::vector<std::unique_ptr<Optimizer>> optimizers;
        for (const bool narrow : {false, true}) {
          weights.push_back({{at::ones({40'000}, at::kBFloat16).requires_grad_(), at::ones({33}, at::kHalf),
                              at::ones({50}).requires_grad_(), at::ones({7, 9}, at::kBFloat16).t().requires_grad_()}});
          OptimizerConfig config = rank.config(device, StateDevice::kNvme);
          config.kernels = kernels;
          config.narrow_gradients = narrow;
          config.bucket_bytes = 1000;
          optimizers.push_back(wrap(adamw().make(weights.back()), config));
        }
        const auto room = [&](std::size_t which) {
          const GradientPlacement placed = optimizers[which]->gradient_placement();
          return placed.host_bytes + placed.disk_bytes;
        };
        EXPECT_LT(10 * room(1), 6 * room(0));
        for (std::uint64_t step = 0; step < 6; ++step) {
          if (step == 2) {
            weights[0][0][1].requires_grad_();  // Its room is made late.
            weights[1][0][1].requires_grad_();
          }
          for (std::size_t which : {0U, 1U}) {
            for (int pass = 0; pass < (step == 4 ? 3 : 1); ++pass) {
              Random random(10 * step + static_cast<std::uint64_t>(pass));
              TensorGroups gradients = random_gradients(weights[which], random);
              gradients[0][1] = weights[which][0][1].requires_grad() ? at::ones({33}, at::kHalf) : at::Tensor();
              backward(weights[which], gradients);
            }
            EXPECT_FALSE(optimizers[which]->unscale_gradients(0.37));
          }
          EXPECT_EQ(optimizers[0]->clip_grad_norm_(0.5), optimizers[1]->clip_grad_norm_(0.5));
          optimizers[0]->step();
          optimizers[1]->step();
          EXPECT_EQ(differences(weights[1], weights[0]), "") << "step " << step;
        }
        EXPECT_EQ(room(1), room(0)) << "a second pass had come";
      });
    }
  }
}

TEST(ShardedFused, SaysWhereThereIsNoRoomForSumsBesideNarrowGradients) {
  with_ranks(1, [](Rank& rank) {
    const Tensors weights{at::ones({100'000}, at::kBFloat16).requires_grad_()};
    OptimizerConfig config = rank.config(GradientDevice::kCpu, StateDevice::kNvme);
    config.narrow_gradients = true;
    config.tiers_options.host_bytes = 1'200'000;
    const auto optimizer = rank.sgd(weights, 1.0, config);
    weights[0].sum().backward();
    optimizer->step();
    EXPECT_EQ(weights[0][9].item<float>(), 0.0F);
    optimizer->zero_grad();
    OptimizerConfig tight = config;
    tight.tiers_options.host_bytes = 500'000;
    const Tensors others{at::ones({100'000}, at::kBFloat16).requires_grad_()};
    const auto other = rank.sgd(others, 1.0, tight);
    others[0].sum().backward();
    others[0].sum().backward();
    EXPECT_THAT(message_of<BudgetExceeded>([&] { other->step(); }), ::testing::HasSubstr("gradients"));
  });
}

// zero_grad(false): a gradient of zeros still moves what has momentum.
TEST(ShardedFused, TakesWhatZeroGradWasToldToKeepAsZeros) {
  with_ranks(1, [](Rank& rank) {
    const Tensors plain{at::ones({300}).requires_grad_()};
    const Tensors weights{at::ones({300}).requires_grad_()};
    torch::optim::AdamW other(plain, torch::optim::AdamWOptions(0.1));
    OptimizerConfig config = rank.config();
    config.kernels = UpdateKernels::kFused;
    const auto optimizer = rank.adamw(weights, config);
    backward({weights}, {{at::ones({300})}});
    backward({plain}, {{at::ones({300})}});
    optimizer->step();
    other.step();
    optimizer->zero_grad(false);
    other.zero_grad(false);
    optimizer->step();
    other.step();
    EXPECT_TRUE(weights[0].allclose(plain[0], 1e-6, 1e-7));
    EXPECT_LT(weights[0][0].item<float>(), 0.85F);
  });
}

// Masters and codes of all ranks are in the archive of each, and come back bit for bit.
TEST(ShardedFused, ItsArchiveHasMastersAndCodesOfAllRanks) {
  for (const StateFormat format : {StateFormat::kFloat32, StateFormat::kBlockwise8}) {
    with_ranks(2, [&](Rank& rank) {
      const auto make_weights = [] {
        return Tensors{at::ones({3000}, at::kBFloat16).requires_grad_(),
                       at::ones({70, 41}, at::kBFloat16).requires_grad_(), at::ones({50}).requires_grad_()};
      };
      OptimizerConfig config = rank.config(GradientDevice::kCpu, StateDevice::kNvme);
      config.kernels = UpdateKernels::kFused;
      config.state_format = format;
      config.masters = MasterFormat::kRemainder;
      const auto train = [&](Optimizer& optimizer, const Tensors& weights, int first, int last) {
        for (int step = first; step < last; ++step) {
          at::Tensor loss = at::zeros({});
          for (const at::Tensor& weight : weights) {
            loss = loss + (weight * weight).sum().to(at::kFloat) * (1.0 + 0.1 * step + rank.number);
          }
          loss.backward();
          optimizer.step();
        }
      };
      const Tensors weights = make_weights();
      const auto optimizer = rank.adamw(weights, config);
      train(*optimizer, weights, 0, 3);
      std::stringstream archive;
      torch::save(*static_cast<torch::optim::Optimizer*>(optimizer.get()), archive);
      const Tensors copy = clone({weights})[0];
      config.shard_weights = {1.0, 3.0};
      config.bucket_bytes = 1;
      const auto other = rank.adamw(copy, config);
      torch::load(*static_cast<torch::optim::Optimizer*>(other.get()), archive);
      train(*optimizer, weights, 3, 6);
      train(*other, copy, 3, 6);
      EXPECT_EQ(differences({copy}, {weights}), "");
    });
  }
}

}  // namespace
}  // namespace spillway::test::sharded_fused_test

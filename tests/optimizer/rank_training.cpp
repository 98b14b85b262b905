#include "optimizer/rank_training.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <spillway/distributed/thread_collective.hpp>
#include <spillway/offload/parallel.hpp>
#include <spillway/optimizer/block_squares.hpp>

namespace spillway::test {
namespace {

at::Tensor random(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kFloat));
}

// The gradients of a rank's rounds, one for each parameter or undefined.
using Round = std::vector<at::Tensor>;

std::vector<Round> rounds_of(const TensorGroups& weights, const std::vector<BackwardPass>& passes,
                             const GradScaler& scaler) {
  std::vector<Round> rounds;
  for (BackwardPass pass : passes) {
    // The second time gives the same gradients, in a round of its own.
    const bool twice = std::exchange(pass.again, false);
    run_backward(weights, pass, scaler);
    Round round;
    for (const Tensors& group : weights) {
      for (const at::Tensor& parameter : group) {
        round.push_back(parameter.grad());
        parameter.mutable_grad().reset();
      }
    }
    if (std::any_of(round.begin(), round.end(), [](const at::Tensor& gradient) { return gradient.defined(); })) {
      rounds.insert(rounds.end(), twice ? 2 : 1, round);
    }
  }
  return rounds;
}

Round sums_of(const std::vector<std::vector<Round>>& ranks, std::size_t parameters) {
  std::size_t most = 0;
  for (const auto& rounds : ranks) {
    most = std::max(most, rounds.size());
  }
  Round sums(parameters);
  for (std::size_t k = 0; k < most; ++k) {
    for (const auto& rounds : ranks) {
      for (std::size_t i = 0; k < rounds.size() && i < parameters; ++i) {
        const at::Tensor& gradient = rounds[k][i];
        if (gradient.defined()) {
          const at::Tensor wide = gradient.to(at::toOpMathType(gradient.scalar_type()));
          sums[i] = sums[i].defined() ? sums[i] + wide : wide.clone();
        }
      }
    }
  }
  for (at::Tensor& sum : sums) {
    if (sum.defined() && ranks.size() > 1) {
      sum.div_(static_cast<std::int64_t>(ranks.size()));
    }
  }
  return sums;
}

double norm_of(const Round& sums) {
  const offload::Parallel parallel({.threads = 1});
  std::vector<double> squares;
  for (const at::Tensor& sum : sums) {
    if (sum.defined()) {
      optimizer::append_squares(sum, parallel, squares);
    }
  }
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

bool all_finite(const Round& sums) { return std::isfinite(norm_of(sums)); }

void multiply(Round& sums, double factor) {
  for (at::Tensor& sum : sums) {
    if (sum.defined()) {
      sum.mul_(factor);
    }
  }
}

}  // namespace

void run_backward(const TensorGroups& weights, const BackwardPass& pass, const GradScaler& scaler) {
  at::Tensor loss = at::zeros({});
  std::size_t i = 0;
  for (const Tensors& group : weights) {
    for (const at::Tensor& parameter : group) {
      const std::uint64_t seed = pass.seed + i;
      if (pass.uses[i++] && parameter.requires_grad()) {
        // A sum alone has an expanded gradient; the square has one that depends on the weights. The factor gives each
        // sum a gradient of its own: those of plain sums of single elements share one in LibTorch, and clipping in
        // place would then change it twice.
        const at::Tensor part =
            seed % 5 == 0
                ? parameter.sum() * static_cast<double>(i)
                : (parameter * parameter * random(parameter.sizes(), seed).mul(0.1).to(parameter.dtype())).sum();
        loss = loss + part.to(at::kFloat);
      }
    }
  }
  if (!loss.requires_grad()) {
    return;
  }
  if (pass.overflows) {
    loss = loss * std::numeric_limits<float>::infinity();
  }
  loss = scaler.scale(pass.factor == 1.0 ? loss : loss * pass.factor);
  loss.backward({}, pass.again);
  if (pass.again) {
    loss.backward();
  }
}

SharedTraining on_one_rank(const SharedTraining& training) {
  SharedTraining merged = training;
  for (std::size_t step = 0; step < training.passes.size(); ++step) {
    std::vector<std::vector<BackwardPass>> rounds;  // By rank: one pass each.
    for (const std::vector<BackwardPass>& passes : training.passes[step]) {
      std::vector<BackwardPass>& own = rounds.emplace_back();
      for (BackwardPass pass : passes) {
        std::size_t i = 0;
        bool any = false;
        for (const Tensors& group : training.start) {
          for (const at::Tensor& parameter : group) {
            any = any || (pass.uses[i] && parameter.requires_grad());
            ++i;
          }
        }
        pass.factor = 1.0 / training.world_size();
        const bool twice = std::exchange(pass.again, false);
        own.insert(own.end(), !any ? 0 : twice ? 2 : 1, pass);
      }
    }
    std::vector<BackwardPass> all;
    for (std::size_t k = 0; std::any_of(rounds.begin(), rounds.end(), [&](const auto& own) { return k < own.size(); });
         ++k) {
      for (const auto& own : rounds) {
        if (k < own.size()) {
          all.push_back(own[k]);
        }
      }
    }
    merged.passes[step] = {all};
  }
  return merged;
}

TrainingResult train_by_definition(const SharedTraining& training) {
  TrainingResult result{clone(training.start), {}, 0, 0.0};
  const auto optimizer = all_option_combinations()[training.recipe].make(result.weights);
  optimizer::LossScale scale({.init_scale = training.scaled ? 1024.0 : 1.0, .growth_interval = 2});
  for (const auto& ranks : training.passes) {
    GradScaler scaler({.init_scale = scale.value()});
    std::vector<std::vector<Round>> rounds;
    for (const std::vector<BackwardPass>& passes : ranks) {
      rounds.push_back(rounds_of(result.weights, passes, scaler));
    }
    const at::NoGradGuard no_grad;
    Round sums = sums_of(rounds, ranks.front().front().uses.size());
    if (training.scaled) {
      const bool finite = all_finite(sums);
      const double inverse = 1.0 / scale.value();
      scale.update(!finite);
      if (!finite) {
        ++result.skipped;
        continue;
      }
      multiply(sums, static_cast<double>(static_cast<float>(inverse)));
    }
    if (training.max_norm) {
      result.norms.push_back(norm_of(sums));
      const double factor = *training.max_norm / (result.norms.back() + 1e-6);
      if (factor < 1.0 || std::isnan(factor)) {
        multiply(sums, factor);
      }
    }
    std::size_t i = 0;
    for (const Tensors& group : result.weights) {
      for (const at::Tensor& parameter : group) {
        const at::Tensor& sum = sums[i++];
        parameter.mutable_grad() = sum.defined() ? sum.to(parameter.scalar_type()) : at::Tensor();
      }
    }
    optimizer->step();
    optimizer->zero_grad();
  }
  result.scale = scale.value();
  return result;
}

TrainingResult train_rank(const SharedTraining& training, int rank, const OptimizerConfig& config) {
  TrainingResult result{clone(training.start), {}, 0, 0.0};
  const auto optimizer = wrap(all_option_combinations()[training.recipe].make(result.weights), config);
  GradScaler scaler({.init_scale = training.scaled ? 1024.0 : 1.0, .growth_interval = 2});
  for (const auto& ranks : training.passes) {
    optimizer->zero_grad();
    for (const BackwardPass& pass : ranks[static_cast<std::size_t>(rank)]) {
      run_backward(result.weights, pass, scaler);
    }
    if (training.scaled) {
      const std::uint64_t skipped = scaler.skipped_steps();
      scaler.unscale_(*optimizer);
      if (training.max_norm) {
        const double norm = optimizer->clip_grad_norm_(*training.max_norm);
        if (std::isfinite(norm)) {
          result.norms.push_back(norm);
        }
      }
      scaler.step(*optimizer);
      scaler.update();
      result.skipped += scaler.skipped_steps() - skipped;
    } else {
      if (training.max_norm) {
        result.norms.push_back(optimizer->clip_grad_norm_(*training.max_norm));
      }
      optimizer->step();
    }
  }
  result.scale = scaler.value();
  return result;
}

void on_ranks(int world_size, std::chrono::milliseconds timeout,
              const std::function<void(int, distributed::Collective*, distributed::Collective*)>& body) {
  auto exchange = distributed::make_thread_group(world_size, timeout);
  auto agreement = distributed::make_thread_group(world_size, timeout);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      // The ends go when their rank is done, so that one that fails is missed at once.
      const auto own_exchange = std::move(exchange[static_cast<std::size_t>(rank)]);
      const auto own_agreement = std::move(agreement[static_cast<std::size_t>(rank)]);
      const bool alone = world_size == 1;
      body(rank, alone ? nullptr : own_exchange.get(), alone ? nullptr : own_agreement.get());
    });
  }
}

SharedTraining random_training(Random& random_choice) {
  SharedTraining training;
  training.start.resize(2);
  const std::uint64_t parameters = random_choice.between(1, 40);
  const bool narrow_types = random_choice.chance(1, 3);
  for (std::uint64_t p = 0; p < parameters; ++p) {
    std::vector<std::int64_t> shape;
    for (std::uint64_t d = random_choice.below(4); d > 0; --d) {
      shape.push_back(static_cast<std::int64_t>(random_choice.below(9)));
    }
    if (random_choice.chance(1, 12)) {
      const auto size = [&](std::uint64_t low, std::uint64_t high) {
        return static_cast<std::int64_t>(random_choice.between(low, high));
      };
      shape = random_choice.chance(1, 2) ? std::vector{size(1, 60'000)} : std::vector{size(100, 250), size(100, 200)};
    }
    // Without float16, whose squares underflow in LibTorch's adaptive optimizers: NaN would be compared.
    static constexpr std::array<at::ScalarType, 3> kTypes{at::kFloat, at::kDouble, at::kBFloat16};
    const at::ScalarType type = kTypes[random_choice.below(narrow_types ? 3 : 2)];
    at::Tensor parameter = random(shape, random_choice.below(1000)).to(type);
    if (parameter.dim() > 1 && random_choice.chance(1, 3)) {
      parameter = parameter.transpose(0, 1);
    }
    training.start[random_choice.below(2)].push_back(parameter.requires_grad_(!random_choice.chance(1, 10)));
  }
  training.recipe = random_choice.below(all_option_combinations().size());
  training.scaled = random_choice.chance(1, 2);
  if (random_choice.chance(1, 2)) {
    training.max_norm = random_choice.chance(1, 2) ? 0.1 : 1e4;
  }
  const auto world_size = random_choice.between(1, 3);
  const auto steps = random_choice.between(2, 4);
  const auto accumulation = random_choice.between(1, 4);
  for (std::uint64_t s = 0; s < steps; ++s) {
    auto& ranks = training.passes.emplace_back(world_size);
    for (auto& passes : ranks) {
      // Now and then a rank has fewer micro-batches than the others.
      const auto count = random_choice.chance(1, 8) ? random_choice.between(1, accumulation) : accumulation;
      for (std::uint64_t m = 0; m < count; ++m) {
        BackwardPass& pass = passes.emplace_back();
        pass.seed = random_choice.below(1U << 30);
        pass.again = random_choice.chance(1, 6);
        pass.overflows = training.scaled && random_choice.chance(1, 12);
        for (std::uint64_t p = 0; p < parameters; ++p) {
          pass.uses.push_back(!random_choice.chance(1, 4));
        }
      }
    }
  }
  return training;
}

}  // namespace spillway::test

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/optimizer/grad_scaler.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>

#include "optimizer/training.hpp"
#include "support/property.hpp"

namespace spillway::test {

/// One backward pass of a rank: which parameters its loss has, and how their gradients come about.
struct BackwardPass {
  std::uint64_t seed = 0;  ///< Of the coefficients.
  std::vector<bool> uses;  ///< By parameter, in the order of groups.
  bool again = false;      ///< The same graph backward once more (retain_graph).
  bool overflows = false;  ///< Its gradients are infinite.
  double factor = 1.0;     ///< Of the loss.
};

/// A training run that several ranks share.
struct SharedTraining {
  TensorGroups start;
  std::size_t recipe = 0;                                      ///< Of all_option_combinations().
  std::vector<std::vector<std::vector<BackwardPass>>> passes;  ///< By step, by rank.
  std::optional<double> max_norm;
  bool scaled = false;

  [[nodiscard]] int world_size() const { return static_cast<int>(passes.front().size()); }
};

/// The gradients that a backward pass gives, taken by whatever hooks the parameters have, else added to `.grad`.
void run_backward(const TensorGroups& weights, const BackwardPass& pass, const GradScaler& scaler);

/// The same training on one rank: the gradients of all ranks in the order of rounds, then of ranks, each divided by
/// their number, which is exact where that is a power of 2.
SharedTraining on_one_rank(const SharedTraining& training);

/// What comes out by definition: one plain optimizer, sums in rounds and in rank order, in float32 or float64.
struct TrainingResult {
  TensorGroups weights;
  std::vector<double> norms;  ///< Of the steps that were clipped.
  std::uint64_t skipped = 0;
  double scale = 0.0;
};
TrainingResult train_by_definition(const SharedTraining& training);

/// What a rank makes of it. @param groups  null in a world of one.
TrainingResult train_rank(const SharedTraining& training, int rank, const OptimizerConfig& config);

/// Runs `body(rank, exchange, agreement)` on threads of their own, one for each rank, and joins them. The groups are
/// null in a world of one.
void on_ranks(
    int world_size, std::chrono::milliseconds timeout,
    const std::function<void(int rank, distributed::Collective* exchange, distributed::Collective* agreement)>& body);

/// A run of random size: 1 to 40 parameters of odd sizes and several types in two groups.
SharedTraining random_training(Random& random);

}  // namespace spillway::test

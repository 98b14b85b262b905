#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/optimizer/shard_plan.hpp>

namespace spillway::optimizer {

/// Sorts gradients, in whatever order they come, into rounds: one gradient at most of each parameter, sent bucket by
/// bucket in the order of buckets. A gradient that comes when its parameter has one in the round already, or when its
/// bucket has left, goes to the next round, behind those of its parameter that wait for it already: so a parameter's
/// gradients are added in the order in which they came, whatever the threads and the timing. Thread-safe.
class GradientRounds {
 public:
  /// Sends off a bucket: one gradient for each of its parameters in their order, undefined where there is none. Called
  /// in the order of rounds and buckets, by one thread at a time; returns soon.
  using Launch = std::function<void(std::size_t bucket, std::vector<at::Tensor> gradients)>;
  /// Whether the round's gradients of this parameter are worth waiting for.
  using Expects = std::function<bool(std::size_t parameter)>;

  /// @param plan  outlives this; parameters are appended between rounds only.
  GradientRounds(const ShardPlan& plan, Expects expects, Launch launch);

  /// Adds a gradient to the round, beginning one where none is open, and launches the buckets that are complete.
  void take(std::size_t parameter, at::Tensor gradient);
  /// Launches what is left of the open round, if any, and has the rounds that gradients wait for.
  void end();
  /// A round without gradients: for ranks that had fewer. Precondition: none is open.
  void run_empty();

  /// Rounds that have ended.
  [[nodiscard]] std::uint64_t completed() const;

 private:
  struct Waiting {
    std::size_t parameter;
    at::Tensor gradient;
  };

  void begin();
  void put(std::size_t parameter, at::Tensor gradient);
  void launch_complete();
  void launch_next();
  void finish();

  const ShardPlan& plan_;
  const Expects expects_;
  const Launch launch_;
  mutable std::mutex mutex_;  // Guards all that follows; held while launching, which keeps the order.
  bool open_ = false;
  std::vector<at::Tensor> gradients_;  // Of the round, by parameter, until their bucket is launched.
  std::vector<bool> taken_;            // By parameter.
  std::vector<std::size_t> missing_;   // Expected gradients that have not come, by bucket.
  std::vector<bool> expected_;         // By parameter.
  std::size_t next_bucket_ = 0;
  std::vector<Waiting> waiting_;  // For the next round, in the order of their coming.
  std::uint64_t completed_ = 0;
};

}  // namespace spillway::optimizer

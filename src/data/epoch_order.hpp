#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace spillway::app {

/// How the samples of an epoch are cut into batches.
struct BatchShape {
  std::uint64_t train_batch = 1;   ///< Samples per optimizer step, over all ranks.
  std::uint64_t accumulation = 1;  ///< Micro-batches per rank and step.
  std::uint64_t world_size = 1;
  bool drop_last = false;  ///< Leave out a last batch that is not full.
};

/// The order in which one epoch visits the samples: a shuffle that depends on seed and epoch alone, cut into steps,
/// each cut into world_size * accumulation parts, rank by rank. So two ranks see what two accumulated micro-batches of
/// one rank see, in the same order. Parts of a last batch that is not full differ by one sample at most, and may be
/// empty. Immutable; may be read from any thread.
class EpochOrder {
 public:
  /// `samples` is below 2^32; every field of `shape` is at least 1.
  EpochOrder(std::uint32_t samples, const BatchShape& shape, std::uint64_t seed, std::uint32_t epoch);

  /// Optimizer steps in the epoch; 0 where drop_last leaves nothing.
  [[nodiscard]] std::uint64_t steps() const noexcept;
  /// The samples of one micro-batch: indices into the data set. Valid while this object lives.
  [[nodiscard]] std::span<const std::uint32_t> micro_batch(std::uint64_t step, std::uint64_t rank,
                                                           std::uint64_t micro) const noexcept;

 private:
  BatchShape shape_;
  std::vector<std::uint32_t> order_;
};

}  // namespace spillway::app

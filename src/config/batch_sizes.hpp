#pragma once

#include <cstdint>

namespace spillway::app {

/// Sizes of batches; 0 where not given.
struct BatchSizes {
  std::uint64_t train = 0;         ///< All ranks, one optimizer step.
  std::uint64_t micro = 0;         ///< One rank, one forward pass.
  std::uint64_t accumulation = 0;  ///< Forward passes per optimizer step.
};

/// Completes train = micro * accumulation * ranks: two of the three give the third; train or micro alone implies an
/// accumulation of 1; with neither, micro is `default_micro`.
/// @param world_size  Ranks, at least 1. Given sizes are below 2^31.
/// @throws ConfigError, naming the key, where they contradict one another, don't divide, or come to
/// 2^31 or more.
[[nodiscard]] BatchSizes resolve_batch_sizes(const BatchSizes& given, std::uint64_t world_size,
                                             std::uint64_t default_micro);

}  // namespace spillway::app

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <spillway/offload/engine_factory.hpp>
#include <spillway/offload/queued_engine.hpp>
#include <spillway/offload/swap_file.hpp>

namespace spillway::offload {

using MakeQueuedEngine = std::function<std::unique_ptr<QueuedEngine>(const DiskSetting&)>;

/// Chunk sizes and depths that are worth a trial, the most likely first: that one is taken unless another is clearly
/// faster, so that noise does not choose.
[[nodiscard]] std::vector<DiskSetting> disk_candidates(std::uint64_t block_bytes_max);

/// Least host memory for a trial.
inline constexpr std::uint64_t kTrialMemoryBytesMin = std::uint64_t{8} << 20;

/// What a trial may take.
struct TrialLimits {
  std::uint64_t host_bytes = ~std::uint64_t{0};  ///< At least kTrialMemoryBytesMin; no more than 32 MiB are taken.
  std::uint64_t file_bytes = ~std::uint64_t{0};  ///< No more than 64 MiB are taken.
};

/// Times overwrites and reads through an engine of each setting, in two rounds, and returns the best with its rates.
/// Real I/O on `file`, which grows to 64 MiB (16 where there is no room for more, or the limits say so); takes, on a
/// disk that is not at a standstill, about a second at most: settings that there is no time for are left out. Nothing
/// where the file can't grow or the disk is so slow that no setting was timed.
/// @throws IoError, TimedOut.
[[nodiscard]] std::optional<DiskSetting> try_disk(const MakeQueuedEngine& make, SwapFile& file,
                                                  std::span<const DiskSetting> settings, const TrialLimits& limits);

}  // namespace spillway::offload

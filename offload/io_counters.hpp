#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace spillway::offload {

/// The reads, or the writes, that engines have moved: requests as the device got them, of a chunk at most each. Written
/// without locks; every field may be read at any time from any thread, and fields read one after the other may differ
/// by what ended in between.
struct IoCounters {
  static constexpr std::size_t kBuckets = 32;

  std::atomic<std::uint64_t> requests{0};
  std::atomic<std::uint64_t> bytes{0};
  /// How long they took from the hand-over to the kernel until their end: bucket 0 counts those under 1 µs, bucket b
  /// those of 2^(b-1) µs to less than 2^b µs, the last one all longer ones too.
  std::array<std::atomic<std::uint64_t>, kBuckets> latency{};

  void count(std::uint64_t moved_bytes, std::chrono::nanoseconds took) noexcept {
    const auto microseconds = static_cast<std::uint64_t>(took.count() < 0 ? 0 : took.count() / 1000);
    const auto bucket = static_cast<std::size_t>(std::bit_width(microseconds));
    requests.fetch_add(1, std::memory_order_relaxed);
    bytes.fetch_add(moved_bytes, std::memory_order_relaxed);
    latency[bucket < kBuckets ? bucket : kBuckets - 1].fetch_add(1, std::memory_order_relaxed);
  }

  /// A bound below which `share` (0 to 1) of the requests stayed: the upper end of a bucket. 0 where there were none.
  [[nodiscard]] std::uint64_t latency_us_below(double share) const noexcept {
    std::uint64_t all = 0;
    for (const auto& bucket : latency) {
      all += bucket.load(std::memory_order_relaxed);
    }
    std::uint64_t seen = 0;
    for (std::size_t bucket = 0; all > 0 && bucket < kBuckets; ++bucket) {
      seen += latency[bucket].load(std::memory_order_relaxed);
      if (static_cast<double>(seen) >= share * static_cast<double>(all)) {
        return std::uint64_t{1} << bucket;
      }
    }
    return 0;
  }
};

}  // namespace spillway::offload

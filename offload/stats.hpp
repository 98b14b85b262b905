#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <spillway/offload/io_counters.hpp>

namespace spillway::offload {

/// What a caller of a store waited for.
enum class StallCause : std::uint8_t {
  kRead,       ///< A block that comes from disk.
  kWriteBack,  ///< A write that the block, or the buffer that it gets, or a flush comes after.
  kChecksum,   ///< A checksum that another thread is making.
  kBlock,      ///< A block that somebody else has leased.
  kBuffer,     ///< A buffer, all of which others have leased.
};
inline constexpr std::size_t kStallCauses = 5;

/// A literal: "waits for a read".
[[nodiscard]] constexpr const char* to_string(StallCause cause) noexcept {
  constexpr std::array<const char*, kStallCauses> kNames{
      "waits for a read", "waits for a write-back", "waits for a checksum", "waits for a block", "waits for a buffer"};
  return kNames[static_cast<std::size_t>(cause)];
}

/// The waits of one cause.
struct StallCounter {
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> ns{0};
};

/// What moved and what it cost, since construction. Written by the stores and engines, read by reports; every field
/// may be read at any time from any thread.
struct Stats {
  std::atomic<std::uint64_t> read_bytes{0};       ///< Bytes that came from disk, padding included.
  std::atomic<std::uint64_t> written_bytes{0};    ///< Bytes that went to disk, padding included.
  IoCounters reads;                               ///< What the engines of all paths read from the disks.
  IoCounters writes;                              ///< What they wrote.
  std::atomic<std::uint64_t> stall_ns{0};         ///< Time that callers waited, whatever for: the sum of `stalls`.
  std::array<StallCounter, kStallCauses> stalls;  ///< By StallCause.

  [[nodiscard]] const StallCounter& stalls_for(StallCause cause) const noexcept {
    return stalls[static_cast<std::size_t>(cause)];
  }
  void count_stall(StallCause cause, std::chrono::nanoseconds took) noexcept {
    StallCounter& counter = stalls[static_cast<std::size_t>(cause)];
    ++counter.count;
    counter.ns += static_cast<std::uint64_t>(took.count());
    stall_ns += static_cast<std::uint64_t>(took.count());
  }
};

}  // namespace spillway::offload

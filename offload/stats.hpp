#pragma once

#include <atomic>
#include <cstdint>

#include <spillway/offload/io_counters.hpp>

namespace spillway::offload {

/// What moved and what it cost, since construction. Written by the stores and engines, read by reports; every field
/// may be read at any time from any thread.
struct Stats {
  std::atomic<std::uint64_t> read_bytes{0};     ///< Bytes that came from disk, padding included.
  std::atomic<std::uint64_t> written_bytes{0};  ///< Bytes that went to disk, padding included.
  IoCounters reads;                             ///< What the engines of all paths read from the disks.
  IoCounters writes;                            ///< What they wrote.
  std::atomic<std::uint64_t> stall_ns{0};       ///< Time that callers waited for a transfer that was not hidden.
};

}  // namespace spillway::offload

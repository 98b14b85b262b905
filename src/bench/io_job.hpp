#pragma once

#include <cstdint>

namespace spillway::app {

enum class IoDirection : std::uint8_t { kRead, kWrite, kMix };

/// What every side of `spillway bench io` is asked to move.
struct IoJob {
  int fd = -1;  ///< Open for direct I/O, with `bytes` allocated.
  IoDirection direction = IoDirection::kRead;
  std::uint64_t bytes = 0;  ///< Moved once, in order. A multiple of both sizes below.
  std::uint64_t block_bytes = 1U << 20;
  unsigned depth = 32;                                   ///< Blocks in flight at most.
  std::uint64_t request_bytes = std::uint64_t{8} << 20;  ///< A mix turns around after so many.

  /// Half and half in a mix, request by request.
  [[nodiscard]] bool writes_at(std::uint64_t offset) const noexcept {
    return direction == IoDirection::kWrite || (direction == IoDirection::kMix && offset / request_bytes % 2 == 1);
  }
};

/// What that took.
struct IoCost {
  double seconds = 0.0;
  double cpu_s = 0.0;  ///< Of all threads, in user and kernel mode.
};

}  // namespace spillway::app

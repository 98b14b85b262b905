#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace spillway::app {

/// The bare loop that the storage engine is held against: one thread, one ring, registered file and buffers, nothing
/// else. What it reaches on memory made of huge pages is what the disk gives to anybody.
struct UringLoopOptions {
  int fd = -1;  ///< Open for direct I/O, with `bytes` allocated.
  bool write = false;
  std::uint64_t bytes = 0;  ///< Moved once, in order. A multiple of block_bytes.
  std::uint64_t block_bytes = 1U << 20;
  unsigned depth = 32;
};

/// Why the loop can't be run here; empty where it can.
[[nodiscard]] std::string uring_loop_unavailable();

/// Blocks until all has moved. @param memory  page-aligned, at least depth * block_bytes.
/// @returns seconds from the first submission to the last completion; making the ring is not counted.
/// @throws IoError.
[[nodiscard]] double run_uring_loop(const UringLoopOptions& options, std::span<std::byte> memory);

}  // namespace spillway::app

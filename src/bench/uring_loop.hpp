#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <spillway/app/bench/io_job.hpp>

namespace spillway::app {

/// Why the loop can't be run here; empty where it can.
[[nodiscard]] std::string uring_loop_unavailable();

/// The bare loop that the storage engine is held against: one thread, one ring, registered file and buffers, nothing
/// else. What it reaches on memory made of huge pages is what the disk gives to anybody. Blocks until all has moved.
/// @param memory  page-aligned, at least depth * block_bytes.
/// @returns the time from the first submission to the last completion; making the ring is not counted.
/// @throws IoError.
[[nodiscard]] IoCost run_uring_loop(const IoJob& job, std::span<std::byte> memory);

}  // namespace spillway::app

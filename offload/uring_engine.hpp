#pragma once

#include <memory>

#include <spillway/offload/queued_engine.hpp>

namespace spillway::offload {

/// Transfers by io_uring: one thread owns the ring and does nothing but submit and reap; files and memory are
/// registered where the kernel allows it.
/// @throws IoError if the kernel or a sandbox refuses to make a ring, with the reason and what to do; ConfigError for
/// options out of range.
[[nodiscard]] std::unique_ptr<QueuedEngine> make_uring_engine(const EngineOptions& options);

}  // namespace spillway::offload

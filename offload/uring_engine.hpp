#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include <spillway/offload/queued_engine.hpp>

namespace spillway::offload {

/// For tests: what the result of a try (bytes moved, or a negative errno value) is taken to be. Called on the ring's
/// thread.
using AlterResult = std::function<std::int64_t(IoRequest::Operation, int fd, std::span<std::byte> buffer,
                                               std::uint64_t offset, std::int64_t result)>;

/// Transfers by io_uring: one thread owns the ring and does nothing but submit and reap; files and memory are
/// registered where the kernel allows it.
/// @throws IoError if the kernel or a sandbox refuses to make a ring, with the reason and what to do; ConfigError for
/// options out of range.
[[nodiscard]] std::unique_ptr<QueuedEngine> make_uring_engine(const EngineOptions& options, AlterResult alter = {});

}  // namespace spillway::offload

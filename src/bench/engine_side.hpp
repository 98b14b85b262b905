#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <spillway/app/bench/io_job.hpp>
#include <spillway/offload/storage_engine.hpp>

namespace spillway::app {

/// The storage engine as the block store uses it: requests of a block each, one after the other through a ring of
/// buffers, each waited for before its buffer is used again.
class EngineSide {
 public:
  /// Memory for the largest ring: enough for twice as much as is in flight at most.
  static constexpr std::uint64_t kMemoryBytes = std::uint64_t{128} << 20;

  /// @param folder  Where the files lie: it decides which engine is chosen.
  EngineSide(std::string folder, std::span<std::byte> memory) : folder_(std::move(folder)), memory_(memory) {}

  /// Blocks until all has moved. Making the engine is not counted. @throws what the engine throws.
  IoCost measure(const IoJob& job);
  /// Writes, reads back and compares, and logs to standard error which engine was chosen.
  /// @throws Error where something else comes back.
  void check(int fd);

  /// Of the last measurement.
  [[nodiscard]] const offload::EngineInfo& info() const noexcept { return info_; }

 private:
  const std::string folder_;
  const std::span<std::byte> memory_;
  offload::EngineInfo info_;
};

}  // namespace spillway::app

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <spillway/offload/storage_engine.hpp>

namespace spillway::test {

/// What the kernel may say or do about one transfer.
enum class Lie {
  kEio,
  kAgainThrice,
  kInterrupted,
  kShort,    ///< Fewer bytes than asked for, and no whole number of pages.
  kNothing,  ///< No byte, and no reason.
  kNoSpace,
  kBitFlip,  ///< One bit is not what it was: in memory after a read, on disk after a write.
  kStale,    ///< What came or stayed is the former version of the place.
  kDelay,    ///< It takes 50 ms.
};

/// Stands behind an engine, between the result of each try of a transfer and what the engine gets to know of it, and
/// lies about the n-th transfer. Every transfer is one chunk. Thread-safe.
class LyingKernel {
 public:
  using Operation = offload::IoRequest::Operation;
  LyingKernel(Lie lie, std::uint64_t nth) : lie_(lie), nth_(nth) {}

  /// To be called after each try. Returns what the engine is told.
  std::int64_t tell(Operation operation, int fd, std::span<std::byte> buffer, std::uint64_t offset,
                    std::int64_t result);

  /// The transfer that was lied about, and the source of a write as it was then.
  struct Victim {
    Operation operation;
    std::uint64_t offset;
    std::span<std::byte> buffer;
    std::vector<std::byte> contents;
  };
  [[nodiscard]] std::optional<Victim> victim() const;

 private:
  struct Versions {
    std::vector<std::byte> current;
    std::vector<std::byte> former;
  };
  std::int64_t lie(Operation operation, int fd, std::span<std::byte> buffer, std::uint64_t offset, std::int64_t result);
  void remember(std::span<const std::byte> buffer, std::uint64_t offset);

  const Lie lie_;
  const std::uint64_t nth_;
  mutable std::mutex mutex_;
  std::uint64_t seen_ = 0;
  std::optional<Victim> victim_;
  unsigned lies_left_ = 0;
  std::map<std::uint64_t, Versions> versions_;  // By place.
};

}  // namespace spillway::test

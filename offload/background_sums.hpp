#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <spillway/offload/copy_stream.hpp>
#include <spillway/offload/storage_engine.hpp>
#include <spillway/offload/trace.hpp>

namespace spillway::offload {

/// The checksum of contents that lie in memory: made once, by whoever comes first, a thread in the background or one
/// that needs it now. Thread-safe.
class BlockSum {
 public:
  /// @param contents  There, and left alone, until ended() is done. @param seed  See xxh3_64.
  BlockSum(std::span<const std::byte> contents, std::uint64_t seed);

  /// Makes it here, unless somebody has begun to.
  void make();
  /// The contents never came: nobody reads them from now on. No effect once somebody has begun to make it.
  void drop();
  /// Done once nobody reads the contents any more. What changes them comes after it.
  [[nodiscard]] const Ticket& ended() const noexcept { return ended_; }
  /// Precondition: ended, and not dropped.
  [[nodiscard]] std::uint64_t value() const;

 private:
  const std::span<const std::byte> contents_;
  const std::uint64_t seed_;
  const Ticket ended_;
  std::atomic<bool> begun_{false};
  std::uint64_t value_ = 0;  // Published by ended_.
};

/// Makes checksums on a thread of its own, so that those who work on blocks need not. Thread-safe.
class BackgroundSums {
 public:
  /// Shared: by the store that will ask for the sum, and by whoever makes it, which may be later than that.
  using SumPtr = std::shared_ptr<BlockSum>;

  /// Sums that may wait for the thread. It is behind then, and whoever brings another makes that one.
  static constexpr unsigned kWaitingMax = 8;

  /// @param thread  Runs what it is given in order, beside its callers. @param trace  Of the sums; may be null.
  explicit BackgroundSums(std::unique_ptr<CopyStream> thread, Trace* trace = nullptr);

  /// Has it made soon, or makes it.
  void add(SumPtr sum);
  /// The same once `transfer` has brought the contents, but never on the thread that ends the transfer; drops it where
  /// the transfer fails. This outlives the transfer.
  void add_after(const Ticket& transfer, SumPtr sum);

 private:
  void push(SumPtr sum);

  Trace* const trace_;
  std::atomic<unsigned> waiting_{0};
  const std::unique_ptr<CopyStream> thread_;  // Last: what it runs uses the above.
};

}  // namespace spillway::offload

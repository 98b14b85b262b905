#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <spillway/offload/background_sums.hpp>
#include <spillway/offload/block_store.hpp>
#include <spillway/offload/storage_engine.hpp>
#include <spillway/offload/tiers.hpp>

namespace spillway::offload {

/// The transfers of one BlockStore: counts their bytes at submission (so that the counts do not depend on timing),
/// times what callers wait, and remembers each write until somebody has learnt how it ended. Guarded by the store's
/// mutex, but for wait(), await() and settle(), which need no guard.
class StoreTransfers {
 public:
  StoreTransfers(Tiers& tiers, Lane read_lane) : tiers_(tiers), read_lane_(read_lane) {}

  /// What a write takes to the disk.
  struct Version {
    BlockId block;
    std::uint64_t generation = 0;
    BackgroundSums::SumPtr sum;  ///< Where its checksum will be found; null: it is known.
  };

  /// Transfers between whole pages and the swap file; both start when all in `after` (some may be empty) have ended,
  /// a write also not before its sum is made: nothing changes the pages before they have been summed.
  /// @throws the engine's first error where it is poisoned; nothing is counted then.
  [[nodiscard]] Ticket read(std::uint64_t offset, std::span<std::byte> pages, std::initializer_list<Ticket> after);
  [[nodiscard]] Ticket write(Version version, std::uint64_t offset, std::span<std::byte> pages, Ticket after);

  /// Blocks until `ticket` (may be empty) has ended; the time counts as stall, for `cause`, and for a write-back as
  /// long as `behind` (may be empty), which `ticket` comes after, had not ended.
  /// @throws IoError, TimedOut.
  void wait(const Ticket& ticket, StallCause cause, const Ticket& behind = {}) const;
  /// A checksum: made here, or waited for where somebody is making it.
  [[nodiscard]] std::uint64_t await(BlockSum& sum) const;
  /// Blocks until it has ended, well or badly.
  void settle(const Ticket& ticket) const noexcept;

  struct Write {
    Ticket ticket;
    Version version;
  };
  /// Looks at the writes that have ended and calls `on_success` with each that succeeded.
  /// @throws the error of one that failed. Does not block.
  template <typename OnSuccess>
  void check_writes(OnSuccess on_success) {
    for (std::size_t i = 0; i < writes_.size();) {
      if (!writes_[i].ticket.done()) {
        ++i;
        continue;
      }
      writes_[i].ticket.wait(tiers_.deadline());  // Throws if it failed, and stays: the next call throws again.
      on_success(writes_[i]);
      std::swap(writes_[i], writes_.back());
      writes_.pop_back();
    }
  }
  /// Where to find the checksum of a version that nobody has looked at since its write was submitted; null: it is
  /// known.
  [[nodiscard]] BackgroundSums::SumPtr sum_of(BlockId block, std::uint64_t generation) const;
  /// Those that nobody has looked at since they ended, and those in flight.
  [[nodiscard]] std::vector<Ticket> writes() const;
  void forget_writes() noexcept { writes_.clear(); }

 private:
  [[nodiscard]] Ticket submit(const IoRequest& request, std::initializer_list<Ticket> after);

  Tiers& tiers_;
  const Lane read_lane_;
  std::vector<Write> writes_;  // A few, as every acquire looks.
};

}  // namespace spillway::offload

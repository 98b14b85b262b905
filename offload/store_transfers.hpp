#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <spillway/offload/block_store.hpp>
#include <spillway/offload/storage_engine.hpp>
#include <spillway/offload/tiers.hpp>

namespace spillway::offload {

/// The transfers of one BlockStore: counts their bytes at submission (so that the counts do not depend on timing),
/// times what callers wait, and remembers each write until somebody has learnt how it ended. Guarded by the store's
/// mutex, but for wait() and settle(), which need no guard.
class StoreTransfers {
 public:
  StoreTransfers(Tiers& tiers, Lane read_lane) : tiers_(tiers), read_lane_(read_lane) {}

  /// Transfers between whole pages and the swap file; both start when `first` and `second` (may be empty) have ended.
  /// @throws the engine's first error where it is poisoned; nothing is counted then.
  [[nodiscard]] Ticket read(std::uint64_t offset, std::span<std::byte> pages, const Ticket& first,
                            const Ticket& second = {});
  [[nodiscard]] Ticket write(BlockId block, std::uint64_t offset, std::span<std::byte> pages, const Ticket& first);

  /// Blocks until `ticket` (may be empty) has ended; the time counts as stall.
  /// @throws IoError, TimedOut.
  void wait(const Ticket& ticket) const;
  /// Blocks until it has ended, well or badly.
  void settle(const Ticket& ticket) const noexcept;

  /// Looks at the writes that have ended and calls `on_success` with the block and the ticket of each that succeeded.
  /// @throws the error of one that failed. Does not block.
  template <typename OnSuccess>
  void check_writes(OnSuccess on_success) {
    for (std::size_t i = 0; i < writes_.size();) {
      if (!writes_[i].ticket.done()) {
        ++i;
        continue;
      }
      writes_[i].ticket.wait(tiers_.deadline());  // Throws if it failed, and stays: the next call throws again.
      on_success(writes_[i].block, writes_[i].ticket);
      std::swap(writes_[i], writes_.back());
      writes_.pop_back();
    }
  }
  /// Those that nobody has looked at since they ended, and those in flight.
  [[nodiscard]] std::vector<Ticket> writes() const;
  void forget_writes() noexcept { writes_.clear(); }

 private:
  struct Write {
    Ticket ticket;
    BlockId block;
  };
  [[nodiscard]] Ticket submit(const IoRequest& request, const Ticket& first, const Ticket& second);

  Tiers& tiers_;
  const Lane read_lane_;
  std::vector<Write> writes_;  // A few, as every acquire looks.
};

}  // namespace spillway::offload

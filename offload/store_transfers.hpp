#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <spillway/offload/storage_engine.hpp>
#include <spillway/offload/tiers.hpp>

namespace spillway::offload {

/// The transfers of one BlockStore: counts their bytes at submission (so that the counts do not depend on timing),
/// times what callers wait, and remembers each write until somebody has learnt how it ended. One caller at a time.
class StoreTransfers {
 public:
  StoreTransfers(Tiers& tiers, Lane read_lane) : tiers_(tiers), read_lane_(read_lane) {}

  /// Transfers between whole pages and the swap file; both start when `first` and `second` (may be empty) have ended.
  /// @throws the engine's first error where it is poisoned; nothing is counted then.
  [[nodiscard]] Ticket read(std::uint64_t offset, std::span<std::byte> pages, const Ticket& first,
                            const Ticket& second = {});
  [[nodiscard]] Ticket write(std::uint64_t offset, std::span<std::byte> pages, const Ticket& first);

  /// Blocks until `ticket` (may be empty) has ended; the time counts as stall.
  /// @throws IoError, TimedOut.
  void wait(const Ticket& ticket);
  /// Blocks until it has ended, well or badly.
  void settle(const Ticket& ticket) const noexcept;

  /// @throws the error of a write that has failed by now. Does not block.
  void check_writes();
  /// Blocks until every write has ended. @throws what failed.
  void wait_for_writes();
  void settle_writes() const noexcept;

 private:
  [[nodiscard]] Ticket submit(const IoRequest& request, const Ticket& first, const Ticket& second);

  Tiers& tiers_;
  Lane read_lane_;
  std::vector<Ticket> writes_;  // In flight, or ended and not yet looked at: a few, as every acquire looks.
};

}  // namespace spillway::offload

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <spillway/offload/block_store.hpp>
#include <spillway/offload/extent_map.hpp>
#include <spillway/offload/pinned_block.hpp>
#include <spillway/offload/storage_engine.hpp>
#include <spillway/offload/tiers.hpp>

namespace spillway::offload {

/// The memory and swap space of one BlockStore: a slab (ring slots, then room for resident blocks) and a range of the
/// swap file, with who uses which part. All of it is reserved and allocated at construction and given back at
/// destruction, whichever step of the construction fails. Guarded by the store's mutex.
class StoreSpace {
 public:
  /// @throws BudgetExceeded, OutOfSpace, ConfigError, Error.
  StoreSpace(Tiers& tiers, const BlockStoreOptions& options);
  /// Waits for what retired ranges wait for. Precondition: nothing else is in flight.
  ~StoreSpace();
  StoreSpace(const StoreSpace&) = delete;
  StoreSpace& operator=(const StoreSpace&) = delete;

  [[nodiscard]] std::span<std::byte> slot(unsigned index) const noexcept;
  [[nodiscard]] std::span<std::byte> memory(std::uint64_t offset, std::uint64_t bytes) const noexcept;

  /// Waits for a transfer; may let go of the store's mutex meanwhile.
  using Wait = std::function<void(const Ticket&)>;
  /// Room for a resident block, zeroed; its offset for memory(). Waits for retired ranges where it must.
  /// @throws BudgetExceeded; what `wait` throws.
  [[nodiscard]] std::uint64_t allocate_memory(std::uint64_t bytes, const Wait& wait);
  /// Room in the swap file; its offset there. Otherwise as allocate_memory.
  [[nodiscard]] std::uint64_t allocate_disk(std::uint64_t bytes, const Wait& wait);
  /// Frees the range once `until` (may be empty) has ended.
  void retire_memory(std::uint64_t offset, std::uint64_t bytes, const Ticket& until);
  void retire_disk(std::uint64_t offset, std::uint64_t bytes, const Ticket& until);

 private:
  struct Retired {
    std::uint64_t offset;
    std::uint64_t bytes;
    Ticket until;
  };
  struct Pool {
    ExtentMap extents;
    std::vector<Retired> retired;
  };
  [[nodiscard]] std::uint64_t allocate(Pool& pool, std::uint64_t bytes, const Wait& wait, Tier tier) const;
  static void retire(Pool& pool, std::uint64_t offset, std::uint64_t bytes, const Ticket& until);

  Tiers& tiers_;
  std::string name_;
  std::uint64_t slot_bytes_;
  std::uint64_t ring_bytes_;
  Reservation resident_reservation_;
  Reservation ring_reservation_;
  Tiers::SwapSpace swap_;
  PinnedBlock slab_;
  Pool memory_;
  Pool disk_;
  std::uint64_t untouched_from_ = 0;  // Memory from here on was never handed out: it is still zero.
};

}  // namespace spillway::offload

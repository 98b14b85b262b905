#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include <spillway/offload/background_sums.hpp>
#include <spillway/offload/block_store.hpp>
#include <spillway/offload/storage_engine.hpp>

namespace spillway::offload {

/// The staging buffers of one BlockStore: which are free, for how long, and which version of which block each still
/// holds. A buffer is the wrong one for a block as soon as the block has another generation, and generations are never
/// used twice: stale contents can't be taken for current ones. Not thread-safe.
class StoreRing {
 public:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  struct Slot {
    std::span<std::byte> memory;
    Ticket last;     ///< What still moves out of it or into it; what changes its memory comes after. May be empty.
    Ticket emptied;  ///< What the read that fills it waited for, if anything.
    /// What reads its memory beside its callers, as of its last transfer; what changes it comes after. May be null.
    std::shared_ptr<BlockSum> sum;
    Ticket filled;  ///< The read that brings what it holds; empty once the contents are there.
    BlockId block;  ///< What it holds, if anything: this block at this generation.
    std::uint64_t generation = 0;
    bool holds = false;
    bool free = true;
  };

  void add(std::span<std::byte> memory);
  [[nodiscard]] Slot& operator[](std::uint32_t index) { return slots_[index]; }
  [[nodiscard]] std::span<const Slot> slots() const noexcept { return slots_; }

  [[nodiscard]] bool any_free() const noexcept { return !free_.empty(); }
  /// The one that has been free for longest: its write-back is the most likely to have ended.
  /// Precondition: any_free().
  [[nodiscard]] std::uint32_t take();
  /// This very one. Precondition: it is free.
  void take(std::uint32_t index);
  void give_back(std::uint32_t index);

  /// Whether `index` (may be kNone) is a free slot that holds this version.
  [[nodiscard]] bool offers(std::uint32_t index, BlockId block, std::uint64_t generation) const noexcept;
  void hold(std::uint32_t index, BlockId block, std::uint64_t generation, Ticket filled);
  void hold_nothing(std::uint32_t index);
  /// Every slot is free, holds nothing and waits for nothing. Precondition: nothing is in flight or leased.
  void reset();

 private:
  std::vector<Slot> slots_;
  std::deque<std::uint32_t> free_;
};

}  // namespace spillway::offload

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include <spillway/offload/tier.hpp>
#include <spillway/offload/tiers.hpp>

namespace spillway::offload {

/// A block of one store.
struct BlockId {
  std::uint32_t value = 0;
  friend bool operator==(BlockId, BlockId) = default;
};

enum class Access : std::uint8_t {
  kRead,       ///< Contents are read; nothing is written back.
  kReadWrite,  ///< Contents are read, changed and written back in the background.
  kOverwrite,  ///< Contents are not read: the client fills the block from nothing; written back.
};

class BlockStore;

/// A block in host memory for as long as this lives: 64-byte aligned, exactly the block's bytes. Dropping it releases
/// the block, on whatever thread; one that was acquired for writing is then written back in the background. One that
/// was acquired for reading is not written to: others may read the same bytes. Move-only. The store outlives its
/// leases.
class Lease {
 public:
  Lease() noexcept = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// True where the block has never been written: the bytes are zeros and no transfer took place.
  [[nodiscard]] bool fresh() const noexcept { return fresh_; }
  [[nodiscard]] explicit operator bool() const noexcept { return store_ != nullptr; }
  /// Gives the block back now. @throws what the write-back's submission throws (a poisoned engine); the destructor
  /// swallows that, and the next acquire throws it.
  void release();
  /// Gives the block back unchanged: nothing is written, and a failed update leaves the disk as it was.
  void abandon() noexcept;

 private:
  friend class BlockStore;
  BlockStore* store_ = nullptr;
  BlockId id_;
  Access access_ = Access::kRead;
  std::span<std::byte> bytes_;
  bool fresh_ = false;
};

/// Whole pages of a block, and where they go.
struct PageRun {
  BlockId block;
  std::uint64_t offset = 0;       ///< In the block; a multiple of kPageBytes.
  std::span<std::byte> memory{};  ///< Page-aligned, whole pages.
};

/// No block is as large.
inline constexpr std::uint64_t kNoBackgroundSums = std::numeric_limits<std::uint64_t>::max();

struct BlockStoreOptions {
  std::string name;                  ///< "optimizer state", "bank": names the store in errors and reports.
  Lane lane = Lane::kState;          ///< Of its reads; write-backs use Lane::kWriteBack.
  unsigned ring_slots = 4;           ///< Staging buffers for streamed blocks.
  std::uint64_t slot_bytes = 0;      ///< Size of one: that of the largest streamed block.
  std::uint64_t resident_bytes = 0;  ///< Host memory for blocks whose home is Tier::kHost; see shadow_slots.
  std::uint64_t disk_bytes = 0;      ///< Swap space, preallocated at construction; see shadow_slots.
  /// Two places for each block, on disk or in host memory, wherever it lives: what is written goes to one, and what was
  /// committed last stays in the other. Every block takes up twice its bytes, rounded up to pages, in resident_bytes or
  /// disk_bytes.
  bool shadow_slots = false;
  /// A buffer that still holds a block's newest contents is handed out again instead of read: at the turn of a pass
  /// that goes back the way of the former one, and right behind a write-back. Which ones do depends on the order of
  /// calls alone, never on timing. Off: every pass reads every block that has been written, whatever the buffers hold,
  /// as forecasts by sizes alone assume.
  bool reuse_buffers = true;
  /// Checksums of blocks from this size on are made by a thread of the tiers', as they arrive and as they leave; those
  /// of smaller ones by their callers. Default: none is large enough. It shortens a pass whose work leaves a
  /// core idle and lengthens one without work; from 256 KiB on it may be worth the hand-over.
  std::uint64_t background_sum_bytes = kNoBackgroundSums;
  bool verify_checksums = true;  ///< Off only in tests, to show that the check is what catches damage.
};

/// Blocks of one client, some at home in host memory, the others on disk and streamed through a ring of staging
/// buffers in an order that the client announces: reading i+1…, working on i and writing back i-1 overlap, without a
/// thread of the store's own (the read of the next block is submitted behind the write of the buffer's former one).
/// Every block that goes to disk has an XXH3-64 checksum over contents, identity and generation, kept in memory and
/// checked when it is handed out again.
/// Thread-safe: any number of threads may acquire blocks out of order at once, beside one thread that goes through an
/// announced pass. Many may read a block, one may write it; those who have to wait for a block or for a buffer get it
/// in the order in which they came. No call holds the store up while it waits.
class BlockStore {
 public:
  /// Reserves and allocates everything: the slab of host memory (registered with the engine) and the swap space.
  /// @throws BudgetExceeded, OutOfSpace, ConfigError.
  BlockStore(std::shared_ptr<Tiers> tiers, BlockStoreOptions options);
  /// Waits for transfers in flight; never throws.
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  /// Adds a block of `bytes` (> 0) at home on `home`; its contents start as zeros. `label` names it in errors.
  /// @throws BudgetExceeded if the space given at construction is used up.
  BlockId add(std::uint64_t bytes, Tier home, std::string label);
  /// Forgets a block and frees its space once nothing is in flight there; does not wait. Precondition: not leased, not
  /// to come in the running pass.
  void remove(BlockId id);
  /// Changes where a block lives. To disk: written in the background (with shadow slots: now), its host memory is free
  /// afterwards (a later block that needs it waits). To host: read now, or taken from its buffer. Precondition: not
  /// leased, not to come in the running pass; with shadow slots, not changed since the last commit.
  /// @throws BudgetExceeded where there is no room, IoError, Corruption, TimedOut: the block stays where it was.
  void set_home(BlockId id, Tier home);
  [[nodiscard]] Tier home(BlockId id) const;

  /// Announces the next pass: blocks in the order in which they will be acquired, each once. Reading ahead starts at
  /// once and returns without waiting. A former pass that was not finished is given up; an empty order does only that.
  /// Precondition: no lease of a streamed block is out.
  void begin(std::span<const BlockId> order, Access access);
  /// The block, in memory. Those that a pass has yet to come to must be acquired in its order and with its access, by
  /// one thread at a time, which holds at most ring_slots - 1 of them. All others at any time, by any thread; one that
  /// is streamed needs a buffer, and what was read ahead furthest is given up for it if none is free. Blocks until the
  /// block is there, and what it waits for counts as stall. Threads that hold a lease while they
  /// acquire another can lock each other out unless there is a buffer for each: that ends with TimedOut.
  /// @throws IoError, also of an earlier write-back; Corruption (names store, block, generation); TimedOut, Cancelled.
  /// Whatever it throws, the block can be asked for again.
  [[nodiscard]] Lease acquire(BlockId id, Access access);
  /// Reads parts of blocks that live on disk, all at once, past the ring and any pass, and waits for them. What a block
  /// has never been written is zeros. The store has a checksum of the whole block only: the caller keeps sums of what
  /// it reads so. Precondition: nobody writes or removes these blocks meanwhile.
  /// @throws IoError, also of an earlier write-back; TimedOut. The memory is the caller's again then, too.
  void read_pages(std::span<const PageRun> runs);
  /// Waits until every write-back has ended. @throws what failed.
  void flush();

  /// With shadow slots: what all blocks contain now is what roll_back returns to. Waits until every write-back has
  /// ended; the former version of each block is given up only then. Precondition: no lease is out.
  /// @throws what failed: nothing is committed then, and the last committed version is still there.
  void commit();
  /// With shadow slots: every block contains what it did at the last commit, or zeros where it was added since. Gives
  /// up the running pass, and a write-back that failed is forgotten. Blocks keep their homes, and one that was removed
  /// stays removed. Waits until nothing is in flight, moves nothing. Precondition: no lease is out.
  /// @throws TimedOut: nothing was rolled back, and it can be tried again.
  void roll_back();

  /// From now on acquire throws Cancelled, also to those who wait for a block or a buffer. Leases that are out stay
  /// good, and what is in flight ends. For shutting down a store that several threads use.
  void close();

  /// Callers that wait for a block or for a buffer now.
  [[nodiscard]] std::size_t waiting() const;
  [[nodiscard]] std::uint64_t block_bytes(BlockId id) const;
  [[nodiscard]] const BlockStoreOptions& options() const noexcept;

 private:
  friend class Lease;
  void release(BlockId id, Access access, bool dirty);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::offload

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <spillway/offload/block_store.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/store_ring.hpp>
#include <spillway/offload/store_space.hpp>
#include <spillway/offload/store_transfers.hpp>

namespace spillway::offload {

/// What the store looks at for every request: one cache line a block, so that the cost of a request does not grow with
/// the table. The checksum lives here rather than on the disk, so that a lost or misdirected write can't bring its own
/// along.
struct alignas(64) StoredBlock {
  std::uint64_t bytes = 0;       ///< 0: the id is unused.
  std::uint64_t offset = 0;      ///< In resident memory or in the swap file, as `home` says.
  std::uint64_t generation = 0;  ///< Of the contents on disk.
  std::uint64_t checksum = 0;    ///< Of the contents on disk.
  Ticket last_write;             ///< What a read of the block has to come after; empty once it is known to be good.
  std::uint32_t slot = StoreRing::kNone;  ///< Where it is while leased and at home on disk; else where it was last.
  std::uint32_t announced_in = 0;         ///< Number of the pass that has yet to come to it; 0: none.
  std::int16_t holders = 0;               ///< Leases that read it, or -1: one that writes it.
  bool of_pass = false;                   ///< Leased in the announced order.
  Tier home = Tier::kHost;
  bool written = false;  ///< Otherwise its contents are zeros, wherever it lives.
  bool ready = false;    ///< While leased: its contents are there, others that read may join.
  bool changed = false;  ///< Since the last commit, in a store with shadow slots.
};
static_assert(sizeof(StoredBlock) == 64);

/// What is looked at seldom.
struct BlockRecord {
  std::string label;
  std::uint64_t extent = 0;             ///< Where its room begins; with shadow slots that of two versions.
  std::uint64_t newest_generation = 0;  ///< Goes on counting, also when a version is rolled back or an id used again.
  struct Version {
    std::uint64_t offset = 0;
    std::uint64_t generation = 0;
    std::uint64_t checksum = 0;
    bool written = false;
  };
  Version committed;  ///< Of a block that was changed since.
};

struct BlockStore::State {
  State(std::shared_ptr<Tiers> the_tiers, BlockStoreOptions the_options);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  using Lock = std::unique_lock<std::mutex>;

  // block_store_state.cpp: the table of blocks, and moves between homes.
  [[nodiscard]] StoredBlock& at(BlockId id);
  [[nodiscard]] BlockId add(std::uint64_t bytes, Tier home, std::string label);
  void remove(BlockId id);
  void set_home(BlockId id, Tier home);
  void move_to_disk(Lock& lock, BlockId id);
  void move_to_host(Lock& lock, BlockId id);
  void copy_from_slot(Lock& lock, BlockId id, std::span<std::byte> pages);
  [[nodiscard]] std::uint64_t allocate(Lock& lock, std::uint64_t bytes, Tier home);
  void retire(std::uint64_t extent, std::uint64_t bytes, Tier home, const Ticket& until);
  /// Bytes of the room that a block of `bytes` has.
  [[nodiscard]] std::uint64_t room_bytes(std::uint64_t bytes) const noexcept {
    return page_ceil(bytes) * (options.shadow_slots ? 2 : 1);
  }
  /// Lets go of the lock while it lives.
  class Unlocked {
   public:
    explicit Unlocked(Lock& lock) : lock_(lock) { lock_.unlock(); }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;
    ~Unlocked() { lock_.lock(); }

   private:
    Lock& lock_;
  };
  /// Waits without the lock, as StoreTransfers::wait. @throws IoError, TimedOut.
  void wait_unlocked(Lock& lock, const Ticket& ticket, StallCause cause, const Ticket& behind = {});
  void wait_for_writes(Lock& lock);

  // store_lease.cpp: blocks that are handed out and come back, and those who wait for them.
  /// What is left to do for a caller who has been granted a block.
  struct Loading {
    bool joined = false;   ///< Nothing: others read it already.
    bool is_read = false;  ///< Its contents come from disk and are to be verified,
    bool reused = false;   ///< or were good in the buffer before.
    Ticket ready;          ///< Usable once this (may be empty) has ended.
  };
  struct Waiter {
    BlockId id;
    Access access;
    Loading loading;
    bool granted = false;
    std::condition_variable wake;
  };
  struct Held {
    std::span<std::byte> bytes;
    bool fresh;
  };
  [[nodiscard]] Held acquire(BlockId id, Access access);
  void check_order(BlockId id, const StoredBlock& block, Access access) const;
  [[nodiscard]] Loading claim(Lock& lock, BlockId id, Access access);
  [[nodiscard]] bool try_grant(BlockId id, Access access, Loading& loading);
  [[nodiscard]] bool try_grant_streamed(BlockId id, StoredBlock& block, Access access, Loading& loading);
  void load(Lock& lock, BlockId id, Access access, const Loading& loading);
  void load_streamed(Lock& lock, BlockId id, const Loading& loading);
  void return_unloaded(BlockId id, const Loading& loading, bool may_be_there);
  void release(BlockId id, Access access, bool dirty);
  void release_streamed(Lock& lock, BlockId id, Access access, bool dirty);
  void write_back_slot(Lock& lock, BlockId id);
  void let_go(StoredBlock& block) noexcept;
  void distribute();
  void fail_with_current_exception();
  [[noreturn]] void throw_timed_out(BlockId id) const;
  void close();

  // store_pass.cpp: the ring, and the announced order.
  void announce(std::span<const BlockId> order, Access access);
  void give_up_pass();
  void fetch();
  [[nodiscard]] bool try_fetch_one();
  [[nodiscard]] bool try_free_a_slot();
  [[nodiscard]] bool still_there(BlockId id, const StoredBlock& block) const noexcept;
  [[nodiscard]] std::uint32_t take_slot(BlockId id, const StoredBlock& block, Access access);
  [[nodiscard]] Loading start_loading(BlockId id, StoredBlock& block, std::uint32_t index, Access access, bool ahead);

  // store_pages.cpp: parts of blocks.
  void read_pages(std::span<const PageRun> runs);

  // store_versions.cpp: writing back, and the two versions of a block in a store with shadow slots.
  [[nodiscard]] std::uint64_t next_generation(BlockId id) const;
  void write_back(BlockId id, std::span<std::byte> memory, std::uint64_t generation, std::uint64_t sum,
                  BackgroundSums::SumPtr later);
  void keep_committed(Lock& lock, BlockId id);
  void remember_committed(BlockId id, StoredBlock& block);
  [[nodiscard]] std::uint64_t other_place(BlockId id, const StoredBlock& block) const;
  void commit();
  void roll_back();

  // store_integrity.cpp: checksums and errors.
  [[nodiscard]] std::uint64_t seed(BlockId id, std::uint64_t generation) const;
  [[nodiscard]] std::uint64_t checksum(BlockId id, std::uint64_t generation, std::span<const std::byte> bytes) const;
  /// A sum that is to be made beside the callers; null where it is none of that kind.
  [[nodiscard]] BackgroundSums::SumPtr background_sum(BlockId id, std::uint64_t generation,
                                                      std::span<const std::byte> bytes) const;
  /// @param made  The sum of `bytes`, if somebody else makes it.
  void verify(Lock& lock, BlockId id, std::span<const std::byte> bytes, bool reused,
              const BackgroundSums::SumPtr& made = {}) const;
  void check_failed();
  [[noreturn]] void rethrow_naming_block(const IoError& error) const;
  /// Runs `body`, which does not leave the mutex locked; an IoError that leaves it gets the name of the block that lies
  /// where the transfer failed.
  template <typename Body>
  auto naming_block(Body body) const {
    try {
      return body();
    } catch (const IoError& error) {
      rethrow_naming_block(error);
    }
  }

  const std::shared_ptr<Tiers> tiers;
  const BlockStoreOptions options;
  const std::uint64_t name_hash;

  /// Guards all that follows. Not held while anybody waits for a transfer, sums, or copies a block.
  mutable std::mutex mutex;
  StoreSpace space;
  StoreTransfers transfers;
  std::vector<StoredBlock> blocks;
  std::vector<BlockRecord> records;
  std::vector<BlockId> unused;
  std::vector<BlockId> changed;  // May name blocks that were removed since, and blocks twice.
  unsigned leases = 0;

  /// A block of the pass that has got its slot.
  struct Fetched {
    BlockId id;
    std::uint32_t slot;
    Loading loading;
  };
  StoreRing ring;
  unsigned leased_slots = 0;
  unsigned pass_leases = 0;
  std::vector<BlockId> order;  // The pass's blocks that are at home on disk.
  Access pass_access = Access::kRead;
  std::uint32_t pass_number = 0;
  std::size_t next_fetch = 0;                // Index into `order`; those before it have got a slot.
  std::deque<Fetched> fetched;               // Those that were not acquired yet, in order.
  std::vector<Waiter*> waiting;              // Oldest first.
  std::shared_ptr<const IoFailure> failure;  // The first of a submission; data, as many threads may throw it.
  bool closed = false;
};

}  // namespace spillway::offload

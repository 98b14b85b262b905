#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <spillway/offload/block_store.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/store_space.hpp>
#include <spillway/offload/store_transfers.hpp>

namespace spillway::offload {

/// What the store knows of one block. The checksum lives here rather than on the disk, so that a lost or misdirected
/// write can't bring its own along.
struct StoredBlock {
  std::string label;
  std::uint64_t bytes = 0;  ///< 0: the id is unused.
  Tier home = Tier::kHost;
  std::uint64_t offset = 0;      ///< In resident memory or in the swap file, as `home` says.
  bool written = false;          ///< Otherwise its contents are zeros, wherever it lives.
  std::uint64_t generation = 0;  ///< Of the contents on disk; goes on counting when an id is used again.
  std::uint64_t checksum = 0;    ///< Of the contents on disk.
  Ticket last_write;             ///< What a read of the block has to come after; may be empty.
  bool leased = false;
  unsigned slot = 0;               ///< Where it is while leased and at home on disk.
  std::uint64_t announced_in = 0;  ///< Number of the pass that has yet to come to it; 0: none.
};

struct BlockStore::State {
  State(std::shared_ptr<Tiers> the_tiers, BlockStoreOptions the_options);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // block_store.cpp: the table of blocks, and moves between homes.
  [[nodiscard]] StoredBlock& at(BlockId id);
  [[nodiscard]] BlockId unused_id();
  void move_to_disk(BlockId id, StoredBlock& block);
  void move_to_host(BlockId id, StoredBlock& block);

  // store_pass.cpp: the ring.
  void announce(std::span<const BlockId> order, Access access);
  void give_up_pass();
  void fetch();
  [[nodiscard]] std::span<std::byte> take(BlockId id, StoredBlock& block, Access access);
  void give_back(BlockId id, StoredBlock& block, bool dirty);
  void write_back(BlockId id, StoredBlock& block, std::span<std::byte> memory);

  // store_integrity.cpp: checksums and errors.
  [[nodiscard]] std::uint64_t checksum(BlockId id, std::uint64_t generation, std::span<const std::byte> bytes) const;
  void verify(BlockId id, const StoredBlock& block, std::span<const std::byte> bytes) const;
  void check_failed();
  [[noreturn]] void rethrow_naming_block(const IoError& error) const;
  /// Runs `body`; an IoError that leaves it gets the name of the block that lies where the transfer failed.
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
  StoreSpace space;
  StoreTransfers transfers;
  std::vector<StoredBlock> blocks;
  std::vector<BlockId> unused;

  /// A slot of the ring: reading into it must wait for what `last` still moves out of it or into it.
  struct Slot {
    std::span<std::byte> memory;
    Ticket last;
  };
  /// A block of the pass that has got its slot: usable once `ready` (may be empty) has ended.
  struct Fetched {
    BlockId id;
    unsigned slot;
    bool is_read;
    Ticket ready;
  };
  std::vector<Slot> slots;
  std::deque<unsigned> free_slots;  // Longest free first: its write-back is the most likely to have ended.
  unsigned leased_slots = 0;
  std::vector<BlockId> order;  // The pass's blocks that are at home on disk.
  Access pass_access = Access::kRead;
  std::uint64_t pass_number = 0;
  std::size_t next_fetch = 0;   // Index into `order`; those before it have got a slot.
  std::deque<Fetched> fetched;  // Those that were not acquired yet, in order.
  std::exception_ptr failure;   // Of a submission that no caller was waiting for.
};

}  // namespace spillway::offload

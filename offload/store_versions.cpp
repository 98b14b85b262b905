// Writing back, and the two versions of a block in a store with shadow slots: the committed one, which nothing
// overwrites, and the one that replaces it at the next commit. Their places alternate.
#include <algorithm>
#include <cstring>

#include <spillway/offload/block_store_state.hpp>
#include <spillway/offload/check.hpp>

namespace spillway::offload {

std::uint64_t BlockStore::State::next_generation(BlockId id) const {
  // A version that was rolled back has used up its number: a buffer that holds it must not pass for its successor.
  return 1 + (options.shadow_slots ? std::max(records[id.value].newest_generation, blocks[id.value].generation)
                                   : blocks[id.value].generation);
}

// The block changes to its next generation once the write is under way; if that is refused, the disk still has the
// former one with its checksum.
void BlockStore::State::write_back(BlockId id, std::span<std::byte> memory, std::uint64_t generation, std::uint64_t sum,
                                   BackgroundSums::SumPtr later) {
  StoredBlock& block = at(id);
  const bool to_shadow = options.shadow_slots && !block.changed;
  const std::uint64_t place = to_shadow ? other_place(id, block) : block.offset;
  if (to_shadow) {
    changed.push_back(id);
  }
  block.last_write = transfers.write({.block = id, .generation = generation, .sum = std::move(later)}, place, memory,
                                     block.last_write);
  if (to_shadow) {
    remember_committed(id, block);
  }
  if (options.shadow_slots) {
    records[id.value].newest_generation = generation;
  }
  block.offset = place;
  block.generation = generation;
  block.checksum = sum;
  block.written = true;
}

// A resident block is about to be changed: the change is made to a copy of it.
void BlockStore::State::keep_committed(Lock& lock, BlockId id) {
  StoredBlock& block = at(id);
  if (!options.shadow_slots || block.changed) {
    return;
  }
  changed.push_back(id);
  const std::uint64_t copy_offset = other_place(id, block);
  remember_committed(id, block);
  const auto committed = space.memory(block.offset, block.bytes);
  const auto copy = space.memory(copy_offset, block.bytes);
  {
    const Unlocked unlocked(lock);
    std::memcpy(copy.data(), committed.data(), committed.size());
  }
  at(id).offset = copy_offset;
}

void BlockStore::State::remember_committed(BlockId id, StoredBlock& block) {
  records[id.value].committed = {block.offset, block.generation, block.checksum, block.written};
  block.changed = true;
}

std::uint64_t BlockStore::State::other_place(BlockId id, const StoredBlock& block) const {
  const std::uint64_t first = records[id.value].extent;
  return block.offset == first ? first + page_ceil(block.bytes) : first;
}

void BlockStore::State::commit() {
  Lock lock(mutex);
  SPILLWAY_CHECK(options.shadow_slots, "a store without shadow slots has nothing to commit");
  SPILLWAY_CHECK(leases == 0, "a commit while a lease is out");
  check_failed();
  wait_for_writes(lock);  // The former version is given up only for one that is all there.
  for (const BlockId id : changed) {
    blocks[id.value].changed = false;
  }
  changed.clear();
}

void BlockStore::State::roll_back() {
  Lock lock(mutex);
  SPILLWAY_CHECK(options.shadow_slots, "a store without shadow slots has nothing to roll back to");
  SPILLWAY_CHECK(leases == 0, "a roll-back while a lease is out");
  give_up_pass();
  std::vector<Ticket> running = transfers.writes();
  for (const StoreRing::Slot& slot : ring.slots()) {
    running.push_back(slot.last);
  }
  for (const Ticket& ticket : running) {
    try {
      wait_unlocked(lock, ticket, StallCause::kWriteBack);
    } catch (const IoError&) {
      // How they end does not matter: nothing of theirs is kept.
    }
  }
  for (const StoreRing::Slot& slot : ring.slots()) {
    if (slot.sum) {
      slot.sum->ended().settle();
    }
  }
  transfers.forget_writes();
  failure = nullptr;
  ring.reset();
  for (const BlockId id : changed) {
    StoredBlock& block = blocks[id.value];
    if (block.changed) {
      const BlockRecord::Version& version = records[id.value].committed;
      block.offset = version.offset;
      block.generation = version.generation;
      block.checksum = version.checksum;
      block.written = version.written;
      block.changed = false;
    }
    block.last_write = {};
  }
  changed.clear();
}

}  // namespace spillway::offload

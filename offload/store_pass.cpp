// The ring: blocks at home on disk on their way through the staging buffers, in the announced order.
#include <cstring>
#include <utility>

#include <spillway/offload/block_store_state.hpp>
#include <spillway/offload/check.hpp>

namespace spillway::offload {

void BlockStore::State::announce(std::span<const BlockId> blocks_in_order, Access access) {
  give_up_pass();
  ++pass_number;
  pass_access = access;
  order.reserve(blocks_in_order.size());
  for (const BlockId id : blocks_in_order) {
    StoredBlock& block = at(id);
    if (block.home == Tier::kDisk) {
      SPILLWAY_CHECK(block.announced_in != pass_number, "a block is twice in the order of a pass");
      block.announced_in = pass_number;
      order.push_back(id);
    }
  }
  fetch();
}

void BlockStore::State::give_up_pass() {
  for (const Fetched& given_up : fetched) {
    free_slots.push_back(given_up.slot);  // A read into it may still run: Slot::last knows.
  }
  for (const BlockId id : order) {
    blocks[id.value].announced_in = 0;
  }
  fetched.clear();
  order.clear();
  next_fetch = 0;
}

// Gives free slots to the next blocks of the pass and submits their reads, each behind what still moves out of its slot
// and behind the block's own write-back. Nobody waits for a result here, so that a failure is kept for the next
// acquire.
void BlockStore::State::fetch() {
  try {
    while (next_fetch < order.size() && !free_slots.empty()) {
      const BlockId id = order[next_fetch];
      const StoredBlock& block = at(id);
      const unsigned index = free_slots.front();
      Slot& slot = slots[index];
      const bool is_read = block.written && pass_access != Access::kOverwrite;
      fetched.push_back({id, index, is_read, slot.last});
      if (is_read) {
        try {
          slot.last =
              transfers.read(block.offset, slot.memory.first(page_ceil(block.bytes)), slot.last, block.last_write);
        } catch (...) {
          fetched.pop_back();
          throw;
        }
        fetched.back().ready = slot.last;
      }
      free_slots.pop_front();
      ++next_fetch;
    }
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
}

std::span<std::byte> BlockStore::State::take(BlockId id, StoredBlock& block, Access access) {
  if (fetched.empty() && next_fetch == order.size()) {
    announce(std::span(&id, 1), access);  // Not announced: a pass of its own.
    check_failed();
  }
  SPILLWAY_CHECK(leased_slots + 1 < options.ring_slots, "too many leases of streamed blocks are out");
  SPILLWAY_CHECK(!fetched.empty() && fetched.front().id == id, "a block is acquired out of the announced order");
  SPILLWAY_CHECK(access == pass_access, "a block is acquired with another access than announced");
  const Fetched& next = fetched.front();
  transfers.wait(next.ready);
  const std::span<std::byte> bytes = slots[next.slot].memory.first(block.bytes);
  if (next.is_read) {
    verify(id, block, bytes);
  } else if (!block.written) {
    std::memset(bytes.data(), 0, bytes.size());
  }
  block.slot = next.slot;
  block.announced_in = 0;
  ++leased_slots;
  fetched.pop_front();
  return bytes;
}

void BlockStore::State::give_back(BlockId id, StoredBlock& block, bool dirty) {
  Slot& slot = slots[block.slot];
  --leased_slots;
  if (dirty) {
    try {
      write_back(id, block, slot.memory.first(page_ceil(block.bytes)));
    } catch (const std::exception&) {
      failure = std::current_exception();  // The slot is not used again: it has the only copy of the contents.
      throw;
    }
    slot.last = block.last_write;
  }
  free_slots.push_back(block.slot);
  fetch();
}

// The block changes to its next generation once the write is under way; if that is refused, the disk still has the
// former one with its checksum.
void BlockStore::State::write_back(BlockId id, StoredBlock& block, std::span<std::byte> memory) {
  std::memset(memory.data() + block.bytes, 0, memory.size() - block.bytes);
  const std::uint64_t sum = checksum(id, block.generation + 1, memory.first(block.bytes));
  block.last_write = transfers.write(block.offset, memory, block.last_write);
  ++block.generation;
  block.checksum = sum;
  block.written = true;
}

}  // namespace spillway::offload

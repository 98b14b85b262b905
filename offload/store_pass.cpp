// The ring: blocks at home on disk on their way through the staging buffers, in the announced order.
#include <utility>

#include <spillway/offload/block_store_state.hpp>
#include <spillway/offload/check.hpp>

namespace spillway::offload {

void BlockStore::State::announce(std::span<const BlockId> blocks_in_order, Access access) {
  give_up_pass();
  if (++pass_number == 0) {
    pass_number = 1;
  }
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
  distribute();
}

void BlockStore::State::give_up_pass() {
  for (const Fetched& given_up : fetched) {
    ring.give_back(given_up.slot);  // A read into it may still run: Slot::last knows.
  }
  for (const BlockId id : order) {
    blocks[id.value].announced_in = 0;
  }
  fetched.clear();
  order.clear();
  next_fetch = 0;
}

// Gives free slots to the next blocks of the pass. Nobody waits for a result here.
void BlockStore::State::fetch() {
  while (try_fetch_one()) {
  }
}

bool BlockStore::State::try_fetch_one() {
  if (next_fetch == order.size() || !ring.any_free()) {
    return false;
  }
  const BlockId id = order[next_fetch];
  StoredBlock& block = at(id);
  const std::uint32_t index = take_slot(id, block, pass_access);
  fetched.push_back({id, index, {}});
  try {
    fetched.back().loading = start_loading(id, block, index, pass_access, true);
  } catch (...) {
    fetched.pop_back();
    ring.give_back(index);
    throw;
  }
  ++next_fetch;
  return true;
}

// Somebody needs a buffer for a block out of the order: what was read ahead furthest is given up for it.
bool BlockStore::State::try_free_a_slot() {
  if (fetched.empty()) {
    return false;
  }
  ring.give_back(fetched.back().slot);
  fetched.pop_back();
  --next_fetch;
  return true;
}

bool BlockStore::State::still_there(BlockId id, const StoredBlock& block) const noexcept {
  return options.reuse_buffers && block.written && ring.offers(block.slot, id, block.generation);
}

// The slot that has the block already, or the one that has been free for longest. Which it is depends on the order of
// calls alone, and so do the bytes that are read.
std::uint32_t BlockStore::State::take_slot(BlockId id, const StoredBlock& block, Access access) {
  if (access != Access::kOverwrite && still_there(id, block)) {
    ring.take(block.slot);
    return block.slot;
  }
  return ring.take();
}

// Submits the read of a block into the slot that it has got, behind what still moves out of the slot and behind the
// block's own write-back. Where the slot has the block already, it can be read at once, though a write-back of it may
// be running, and changed when that has ended.
// @param ahead  Nobody waits for it yet, so that its checksum can be made before somebody does.
BlockStore::State::Loading BlockStore::State::start_loading(BlockId id, StoredBlock& block, std::uint32_t index,
                                                            Access access, bool ahead) {
  StoreRing::Slot& slot = ring[index];
  if (!block.written || access == Access::kOverwrite) {
    ring.hold_nothing(index);
    return {.ready = slot.last};
  }
  if (options.reuse_buffers && slot.holds && slot.block == id && slot.generation == block.generation) {
    return {.is_read = true, .reused = !slot.filled, .ready = access == Access::kRead ? slot.filled : slot.last};
  }
  const BackgroundSums::SumPtr sum =
      ahead ? background_sum(id, block.generation, slot.memory.first(block.bytes)) : nullptr;
  const Ticket summed = slot.sum ? slot.sum->ended() : Ticket();
  const Ticket read =
      transfers.read(block.offset, slot.memory.first(page_ceil(block.bytes)), {slot.last, summed, block.last_write});
  const Ticket before = std::exchange(slot.last, read);
  slot.emptied = before && !before.done() ? before : block.last_write;
  slot.sum = sum;
  ring.hold(index, id, block.generation, read);
  if (sum) {
    tiers->sums().add_after(read, sum);
  }
  return {.is_read = true, .ready = slot.last};
}

}  // namespace spillway::offload

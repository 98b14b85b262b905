// Blocks that are handed out and come back, and those who wait for them.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include <spillway/offload/block_store_state.hpp>
#include <spillway/offload/check.hpp>
#include <spillway/offload/stall_timer.hpp>

namespace spillway::offload {

BlockStore::State::Held BlockStore::State::acquire(BlockId id, Access access) {
  Lock lock(mutex);
  check_failed();
  check_order(id, at(id), access);
  const Loading loading = claim(lock, id, access);
  load(lock, id, access, loading);
  const StoredBlock& block = at(id);
  return {
      block.home == Tier::kHost ? space.memory(block.offset, block.bytes) : ring[block.slot].memory.first(block.bytes),
      !block.written};
}

void BlockStore::State::check_order(BlockId id, const StoredBlock& block, Access access) const {
  if (block.home == Tier::kHost || block.announced_in == 0) {
    return;
  }
  SPILLWAY_CHECK(pass_leases + 1 < options.ring_slots, "too many leases of streamed blocks are out");
  SPILLWAY_CHECK((fetched.empty() ? order[next_fetch] : fetched.front().id) == id,
                 "a block is acquired out of the announced order");
  SPILLWAY_CHECK(access == pass_access, "a block is acquired with another access than announced");
}

// Comes back when the block, and a buffer where it needs one, are this caller's.
BlockStore::State::Loading BlockStore::State::claim(Lock& lock, BlockId id, Access access) {
  if (closed) {
    throw Cancelled(options.name + " is closed: no block of it is handed out any more");
  }
  Waiter self{id, access, {}, false, {}};
  const bool wanted =
      std::any_of(waiting.begin(), waiting.end(), [id](const Waiter* other) { return other->id == id; });
  if (!wanted && try_grant(id, access, self.loading)) {
    return self.loading;
  }
  const StallTimer stall(*tiers, at(id).holders != 0 ? StallCause::kBlock : StallCause::kBuffer);
  waiting.push_back(&self);
  self.wake.wait_for(lock, tiers->deadline(), [&] { return self.granted || failure || closed; });
  if (!self.granted) {
    std::erase(waiting, &self);
    distribute();  // Who stood behind this one need not wait for it any more.
    check_failed();
    if (closed) {
      throw Cancelled(options.name + " was closed while a caller waited for block '" + records[id.value].label + "'");
    }
    throw_timed_out(id);
  }
  return self.loading;
}

// Whether the caller may have the block now; if so it has. @throws where the read can't be submitted.
bool BlockStore::State::try_grant(BlockId id, Access access, Loading& loading) {
  StoredBlock& block = at(id);
  if (block.holders != 0) {
    if (access != Access::kRead || block.holders < 0 || !block.ready) {
      return false;
    }
    SPILLWAY_CHECK(block.holders < std::numeric_limits<std::int16_t>::max(), "too many leases of one block");
    ++block.holders;
    ++leases;
    loading = {.joined = true, .ready = {}};
    return true;
  }
  if (block.home == Tier::kDisk && !try_grant_streamed(id, block, access, loading)) {
    return false;
  }
  block.holders = access == Access::kRead ? 1 : -1;
  block.ready = false;
  ++leases;
  return true;
}

bool BlockStore::State::try_grant_streamed(BlockId id, StoredBlock& block, Access access, Loading& loading) {
  if (block.announced_in != 0) {
    if (fetched.empty() && !try_fetch_one()) {
      return false;
    }
    SPILLWAY_CHECK(fetched.front().id == id, "two threads go through one pass");
    block.slot = fetched.front().slot;
    loading = std::move(fetched.front().loading);
    fetched.pop_front();
    block.announced_in = 0;
    block.of_pass = true;
    ++pass_leases;
  } else {
    if (!ring.any_free() && !try_free_a_slot()) {
      return false;
    }
    const std::uint32_t index = take_slot(id, block, access);
    try {
      loading = start_loading(id, block, index, access, false);
    } catch (...) {
      ring.give_back(index);
      throw;
    }
    block.slot = index;
  }
  ++leased_slots;
  return true;
}

void BlockStore::State::load(Lock& lock, BlockId id, Access access, const Loading& loading) {
  if (loading.joined) {
    return;
  }
  if (at(id).home == Tier::kDisk) {
    load_streamed(lock, id, loading);
  } else if (access != Access::kRead) {
    try {
      keep_committed(lock, id);
    } catch (...) {
      let_go(at(id));
      throw;
    }
  }
  at(id).ready = true;
  if (access == Access::kRead && !waiting.empty()) {
    distribute();  // Others that read it may join.
  }
}

void BlockStore::State::load_streamed(Lock& lock, BlockId id, const Loading& loading) {
  const std::span<std::byte> bytes = ring[at(id).slot].memory.first(at(id).bytes);
  const bool from_disk = loading.is_read && !loading.reused;
  const bool fresh = !at(id).written;
  const BackgroundSums::SumPtr sum = ring[at(id).slot].sum;
  try {
    wait_unlocked(lock, loading.ready, from_disk ? StallCause::kRead : StallCause::kWriteBack,
                  from_disk ? ring[at(id).slot].emptied : Ticket());
    if (loading.is_read) {
      verify(lock, id, bytes, loading.reused, from_disk ? sum : nullptr);
      ring[at(id).slot].filled = {};
    } else {
      const Unlocked unlocked(lock);
      if (sum) {
        sum->ended().settle();  // Of a read that was given up: it may be made still.
      }
      if (fresh) {
        std::memset(bytes.data(), 0, bytes.size());
      }
    }
  } catch (const TimedOut&) {
    return_unloaded(id, loading, true);
    throw;
  } catch (...) {
    return_unloaded(id, loading, false);
    throw;
  }
}

// The caller has not got its block. It can be asked for again: one of a pass is the next in its order still.
void BlockStore::State::return_unloaded(BlockId id, const Loading& loading, bool may_be_there) {
  StoredBlock& block = at(id);
  if (!may_be_there) {
    ring.hold_nothing(block.slot);
  }
  if (block.of_pass) {
    fetched.push_front({id, block.slot, loading});
    block.announced_in = pass_number;
  } else {
    ring.give_back(block.slot);
  }
  let_go(block);
  distribute();
}

void BlockStore::State::release(BlockId id, Access access, bool dirty) {
  Lock lock(mutex);
  StoredBlock& block = at(id);
  if (block.home == Tier::kDisk) {
    release_streamed(lock, id, access, dirty);
  } else {
    if (dirty) {
      block.written = true;
    } else if (access != Access::kRead && !block.written) {
      // Given up half-way: a block that was never written stays one of zeros.
      const auto bytes = space.memory(block.offset, block.bytes);
      std::memset(bytes.data(), 0, bytes.size());
    }
    let_go(block);
  }
  distribute();
}

void BlockStore::State::release_streamed(Lock& lock, BlockId id, Access access, bool dirty) {
  const std::uint32_t index = at(id).slot;
  if (dirty) {
    try {
      write_back_slot(lock, id);
    } catch (const std::exception&) {
      fail_with_current_exception();
      let_go(at(id));  // But the slot is not used again: it has the only copy of the contents.
      throw;
    }
  } else if (access != Access::kRead) {
    ring.hold_nothing(index);  // Changed perhaps, and given up.
  }
  let_go(at(id));
  if (at(id).holders == 0) {
    ring.give_back(index);
  }
}

void BlockStore::State::write_back_slot(Lock& lock, BlockId id) {
  const std::uint32_t index = at(id).slot;
  const std::uint64_t generation = next_generation(id);
  const std::uint64_t content_bytes = at(id).bytes;
  const std::span<std::byte> memory = ring[index].memory.first(page_ceil(content_bytes));
  const std::span<const std::byte> contents = memory.first(content_bytes);
  const BackgroundSums::SumPtr later = background_sum(id, generation, contents);
  ring[index].sum = later;
  std::uint64_t sum = 0;
  {
    const Unlocked unlocked(lock);
    std::memset(memory.data() + content_bytes, 0, memory.size() - content_bytes);
    if (later) {
      tiers->sums().add(later);
    } else {
      sum = checksum(id, generation, contents);
    }
  }
  write_back(id, memory, generation, sum, later);
  ring[index].last = at(id).last_write;
  ring.hold(index, id, generation, {});
}

void BlockStore::State::let_go(StoredBlock& block) noexcept {
  block.holders = block.holders < 0 ? std::int16_t{0} : static_cast<std::int16_t>(block.holders - 1);
  --leases;
  if (block.holders > 0) {
    return;
  }
  block.ready = false;
  if (block.home == Tier::kDisk) {
    --leased_slots;
    pass_leases -= block.of_pass ? 1 : 0;
    block.of_pass = false;
  }
}

// Gives what has become free to those who wait for it, oldest first, and what is left to the pass. Nobody is passed by
// a later one that wants the same block, so that readers who come and go do not keep a writer waiting for ever.
void BlockStore::State::distribute() {
  try {
    for (auto next = waiting.begin(); next != waiting.end();) {
      Waiter& waiter = **next;
      const bool behind =
          std::any_of(waiting.begin(), next, [&](const Waiter* older) { return older->id == waiter.id; });
      if (behind || !try_grant(waiter.id, waiter.access, waiter.loading)) {
        ++next;
        continue;
      }
      waiter.granted = true;
      waiter.wake.notify_one();
      next = waiting.erase(next);
    }
    fetch();
  } catch (const std::exception&) {
    fail_with_current_exception();
  }
}

void BlockStore::State::throw_timed_out(BlockId id) const {
  const StoredBlock& block = blocks[id.value];
  const std::string why = block.holders != 0 ? std::string("it is leased to somebody who ") +
                                                   (block.holders < 0 ? "writes" : "reads") + " it"
                                             : "all " + std::to_string(options.ring_slots) + " buffers are leased";
  throw TimedOut(options.name + ": block '" + records[id.value].label + "' could not be had within " +
                 std::to_string(tiers->deadline().count()) + " ms, because " + why +
                 "; callers that hold a lease while they wait for another need a buffer each (ring_slots)");
}

void BlockStore::State::close() {
  const Lock lock(mutex);
  closed = true;
  for (Waiter* waiter : waiting) {
    waiter->wake.notify_one();
  }
}

}  // namespace spillway::offload

#include <spillway/offload/block_store_state.hpp>

#include <array>
#include <cstring>
#include <utility>

#include <spillway/offload/check.hpp>
#include <spillway/offload/checksum.hpp>

namespace spillway::offload {
namespace {

BlockStoreOptions checked(BlockStoreOptions options) {
  if (options.slot_bytes > 0 && options.ring_slots < 2) {
    throw ConfigError(options.name + ": a ring of " + std::to_string(options.ring_slots) +
                      " staging buffers can't overlap anything; give it 2 or more");
  }
  return options;
}

std::span<const std::byte> content_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

BlockStore::State::State(std::shared_ptr<Tiers> the_tiers, BlockStoreOptions the_options)
    : tiers(std::move(the_tiers)),
      options(checked(std::move(the_options))),
      name_hash(xxh3_64(content_of(options.name))),
      space(*tiers, options),
      transfers(*tiers, options.lane) {
  if (options.slot_bytes > 0) {
    for (unsigned i = 0; i < options.ring_slots; ++i) {
      ring.add(space.slot(i));
    }
  }
}

BlockStore::State::~State() {
  SPILLWAY_CHECK(leases == 0, "a lease outlives its store");
  SPILLWAY_CHECK(waiting.empty(), "a store dies while somebody waits for a block of it");
  for (const StoreRing::Slot& slot : ring.slots()) {
    transfers.settle(slot.last);
    if (slot.sum) {
      slot.sum->ended().settle();
    }
  }
  for (const Ticket& write : transfers.writes()) {
    transfers.settle(write);
  }
}

void BlockStore::State::wait_unlocked(Lock& lock, const Ticket& ticket, StallCause cause, const Ticket& behind) {
  if (!ticket) {
    return;
  }
  const Unlocked unlocked(lock);
  transfers.wait(ticket, cause, behind);
}

void BlockStore::State::wait_for_writes(Lock& lock) {
  for (const Ticket& write : transfers.writes()) {
    wait_unlocked(lock, write, StallCause::kWriteBack);
  }
  check_failed();
}

StoredBlock& BlockStore::State::at(BlockId id) {
  SPILLWAY_CHECK(id.value < blocks.size() && blocks[id.value].bytes > 0, "no such block");
  return blocks[id.value];
}

BlockId BlockStore::State::add(std::uint64_t bytes, Tier home, std::string label) {
  Lock lock(mutex);
  check_failed();
  const std::uint64_t extent = allocate(lock, bytes, home);
  try {
    if (unused.empty()) {
      unused.push_back({static_cast<std::uint32_t>(blocks.size())});
      blocks.emplace_back();
      records.resize(blocks.size());
    }
  } catch (...) {
    retire(extent, bytes, home, {});
    throw;
  }
  const BlockId id = unused.back();
  unused.pop_back();
  StoredBlock& block = blocks[id.value];
  block.bytes = bytes;
  block.home = home;
  block.offset = extent;
  block.written = false;
  BlockRecord& record = records[id.value];
  record.label = std::move(label);
  record.extent = extent;
  return id;
}

void BlockStore::State::remove(BlockId id) {
  const Lock lock(mutex);
  StoredBlock& block = at(id);
  SPILLWAY_CHECK(block.holders == 0, "a leased block is removed");
  SPILLWAY_CHECK(block.announced_in == 0, "a block that the running pass has yet to come to is removed");
  unused.reserve(blocks.size());
  retire(records[id.value].extent, block.bytes, block.home, block.last_write);
  block.bytes = 0;
  block.last_write = {};
  block.changed = false;
  unused.push_back(id);
}

void BlockStore::State::set_home(BlockId id, Tier home) {
  Lock lock(mutex);
  StoredBlock& block = at(id);
  SPILLWAY_CHECK(block.holders == 0, "a leased block changes its home");
  SPILLWAY_CHECK(block.announced_in == 0, "a block that the running pass has yet to come to changes its home");
  SPILLWAY_CHECK(!block.changed || block.home == home,
                 "a block that was changed since the last commit changes its home");
  if (block.home == home) {
    return;
  }
  check_failed();
  block.holders = -1;  // Nobody else comes near it where the lock is let go of.
  ++leases;
  try {
    home == Tier::kDisk ? move_to_disk(lock, id) : move_to_host(lock, id);
  } catch (...) {
    at(id).holders = 0;
    --leases;
    distribute();
    throw;
  }
  at(id).holders = 0;
  --leases;
  distribute();
}

void BlockStore::State::move_to_disk(Lock& lock, BlockId id) {
  const std::uint64_t bytes = at(id).bytes;
  SPILLWAY_CHECK(bytes <= options.slot_bytes, "a block that goes to disk is larger than a slot");
  const std::uint64_t extent = allocate(lock, bytes, Tier::kDisk);
  Ticket write;
  if (at(id).written) {
    try {
      const std::uint64_t generation = next_generation(id);
      const auto memory = space.memory(at(id).offset, page_ceil(bytes));
      std::uint64_t sum = 0;
      {
        const Unlocked unlocked(lock);
        std::memset(memory.data() + bytes, 0, memory.size() - bytes);
        sum = checksum(id, generation, memory.first(bytes));
      }
      write = transfers.write({.block = id, .generation = generation, .sum = {}}, extent, memory, {});
      if (options.shadow_slots) {
        wait_unlocked(lock, write,
                      StallCause::kWriteBack);  // Nothing could be rolled back to if the only copy were on its way.
      }
      at(id).generation = generation;
      at(id).checksum = sum;
      at(id).last_write = write;
    } catch (...) {
      retire(extent, bytes, Tier::kDisk, write);
      throw;
    }
  }
  retire(records[id.value].extent, bytes, Tier::kHost, write);
  at(id).home = Tier::kDisk;
  at(id).offset = extent;
  records[id.value].extent = extent;
}

void BlockStore::State::move_to_host(Lock& lock, BlockId id) {
  const std::uint64_t bytes = at(id).bytes;
  const std::uint64_t extent = allocate(lock, bytes, Tier::kHost);
  if (at(id).written) {
    const auto pages = space.memory(extent, page_ceil(bytes));
    Ticket read;
    try {
      if (still_there(id, at(id))) {
        copy_from_slot(lock, id, pages);
      } else {
        const Ticket behind = at(id).last_write;
        read = transfers.read(at(id).offset, pages, {behind});
        wait_unlocked(lock, read, StallCause::kRead, behind);
        verify(lock, id, pages.first(bytes), false);
      }
    } catch (...) {
      retire(extent, bytes, Tier::kHost, read);  // It may be in flight still.
      throw;
    }
  }
  retire(records[id.value].extent, bytes, Tier::kDisk, at(id).last_write);
  at(id).home = Tier::kHost;
  at(id).offset = extent;
  at(id).last_write = {};
  records[id.value].extent = extent;
}

// A block that moves to host memory and is still in a buffer.
void BlockStore::State::copy_from_slot(Lock& lock, BlockId id, std::span<std::byte> pages) {
  const std::uint32_t index = at(id).slot;
  const std::uint64_t bytes = at(id).bytes;
  ring.take(index);
  ++leased_slots;
  const auto give_back = [&] {
    --leased_slots;
    ring.give_back(index);
  };
  try {
    wait_unlocked(lock, ring[index].filled, StallCause::kRead, ring[index].emptied);
    const auto contents = ring[index].memory.first(bytes);
    verify(lock, id, contents, !ring[index].filled);
    const Unlocked unlocked(lock);
    std::memcpy(pages.data(), contents.data(), bytes);
  } catch (const std::exception&) {
    ring.hold_nothing(index);
    give_back();
    throw;
  }
  give_back();
}

std::uint64_t BlockStore::State::allocate(Lock& lock, std::uint64_t bytes, Tier home) {
  const auto wait = [this, &lock](const Ticket& ticket) { wait_unlocked(lock, ticket, StallCause::kWriteBack); };
  return home == Tier::kHost ? space.allocate_memory(room_bytes(bytes), wait)
                             : space.allocate_disk(room_bytes(bytes), wait);
}

void BlockStore::State::retire(std::uint64_t extent, std::uint64_t bytes, Tier home, const Ticket& until) {
  home == Tier::kHost ? space.retire_memory(extent, room_bytes(bytes), until)
                      : space.retire_disk(extent, room_bytes(bytes), until);
}

}  // namespace spillway::offload

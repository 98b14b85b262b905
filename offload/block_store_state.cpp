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
      slots.push_back({space.slot(i), {}});
      free_slots.push_back(i);
    }
  }
}

BlockStore::State::~State() {
  for (const StoredBlock& block : blocks) {
    SPILLWAY_CHECK(!block.leased, "a lease outlives its store");
  }
  for (const Slot& slot : slots) {
    transfers.settle(slot.last);
  }
  transfers.settle_writes();
}

StoredBlock& BlockStore::State::at(BlockId id) {
  SPILLWAY_CHECK(id.value < blocks.size() && blocks[id.value].bytes > 0, "no such block");
  return blocks[id.value];
}

BlockId BlockStore::State::unused_id() {
  if (unused.empty()) {
    unused.push_back({static_cast<std::uint32_t>(blocks.size())});
    try {
      blocks.emplace_back();
    } catch (...) {
      unused.pop_back();
      throw;
    }
  }
  return unused.back();
}

void BlockStore::State::move_to_disk(BlockId id, StoredBlock& block) {
  SPILLWAY_CHECK(block.bytes <= options.slot_bytes, "a block that goes to disk is larger than a slot");
  const std::uint64_t memory_offset = block.offset;
  const std::uint64_t disk_offset = space.allocate_disk(block.bytes, transfers);
  block.offset = disk_offset;
  if (block.written) {
    try {
      write_back(id, block, space.memory(memory_offset, page_ceil(block.bytes)));
    } catch (...) {
      block.offset = memory_offset;
      space.retire_disk(disk_offset, block.bytes, {});
      throw;
    }
  }
  block.home = Tier::kDisk;
  space.retire_memory(memory_offset, block.bytes, block.last_write);
}

void BlockStore::State::move_to_host(BlockId id, StoredBlock& block) {
  const std::uint64_t memory_offset = space.allocate_memory(block.bytes, transfers);
  if (block.written) {
    const auto pages = space.memory(memory_offset, page_ceil(block.bytes));
    Ticket ticket;
    try {
      ticket = transfers.read(block.offset, pages, block.last_write);
      transfers.wait(ticket);
      verify(id, block, pages.first(block.bytes));
    } catch (...) {
      space.retire_memory(memory_offset, block.bytes, ticket);  // It may be in flight still.
      throw;
    }
  }
  space.retire_disk(block.offset, block.bytes, block.last_write);
  block.home = Tier::kHost;
  block.offset = memory_offset;
  block.last_write = {};
}

}  // namespace spillway::offload

#include <spillway/offload/block_store.hpp>

#include <cstring>
#include <utility>

#include <spillway/offload/block_store_state.hpp>
#include <spillway/offload/check.hpp>

namespace spillway::offload {

Lease::Lease(Lease&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)),
      id_(other.id_),
      access_(other.access_),
      bytes_(std::exchange(other.bytes_, {})),
      fresh_(other.fresh_) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  Lease taken(std::move(other));  // First, so that assigning to itself keeps what there is.
  std::swap(store_, taken.store_);
  std::swap(id_, taken.id_);
  std::swap(access_, taken.access_);
  std::swap(bytes_, taken.bytes_);
  std::swap(fresh_, taken.fresh_);
  return *this;
}

Lease::~Lease() {
  try {
    release();
  } catch (const std::exception&) {
    // The store has kept it and throws it at the next acquire.
  }
}

void Lease::release() {
  if (BlockStore* store = std::exchange(store_, nullptr)) {
    bytes_ = {};
    store->release(id_, access_, access_ != Access::kRead);
  }
}

void Lease::abandon() noexcept {
  if (BlockStore* store = std::exchange(store_, nullptr)) {
    bytes_ = {};
    store->release(id_, access_, false);
  }
}

BlockStore::BlockStore(std::shared_ptr<Tiers> tiers, BlockStoreOptions options)
    : state_(std::make_unique<State>(std::move(tiers), std::move(options))) {}

BlockStore::~BlockStore() = default;

BlockId BlockStore::add(std::uint64_t bytes, Tier home, std::string label) {
  State& state = *state_;
  SPILLWAY_CHECK(bytes > 0, "a block of no bytes");
  SPILLWAY_CHECK(home == Tier::kHost || home == Tier::kDisk, "a block lives in host memory or on disk");
  SPILLWAY_CHECK(home == Tier::kHost || bytes <= state.options.slot_bytes, "a block on disk is larger than a slot");
  return state.naming_block([&] {
    state.check_failed();
    const BlockId id = state.unused_id();
    const std::uint64_t offset = home == Tier::kHost ? state.space.allocate_memory(bytes, state.transfers)
                                                     : state.space.allocate_disk(bytes, state.transfers);
    state.unused.pop_back();
    StoredBlock& block = state.blocks[id.value];
    block.label = std::move(label);
    block.bytes = bytes;
    block.home = home;
    block.offset = offset;
    block.written = false;
    return id;
  });
}

void BlockStore::remove(BlockId id) {
  State& state = *state_;
  StoredBlock& block = state.at(id);
  SPILLWAY_CHECK(!block.leased, "a leased block is removed");
  SPILLWAY_CHECK(block.announced_in == 0, "a block that the running pass has yet to come to is removed");
  state.unused.reserve(state.blocks.size());
  if (block.home == Tier::kHost) {
    state.space.retire_memory(block.offset, block.bytes, {});
  } else {
    state.space.retire_disk(block.offset, block.bytes, block.last_write);
  }
  block.bytes = 0;
  block.last_write = {};
  state.unused.push_back(id);
}

void BlockStore::set_home(BlockId id, Tier home) {
  State& state = *state_;
  StoredBlock& block = state.at(id);
  SPILLWAY_CHECK(home == Tier::kHost || home == Tier::kDisk, "a block lives in host memory or on disk");
  SPILLWAY_CHECK(!block.leased, "a leased block changes its home");
  SPILLWAY_CHECK(block.announced_in == 0, "a block that the running pass has yet to come to changes its home");
  if (block.home == home) {
    return;
  }
  state.naming_block([&] {
    state.check_failed();
    home == Tier::kDisk ? state.move_to_disk(id, block) : state.move_to_host(id, block);
  });
}

Tier BlockStore::home(BlockId id) const { return state_->at(id).home; }

void BlockStore::begin(std::span<const BlockId> order, Access access) {
  SPILLWAY_CHECK(state_->leased_slots == 0, "a pass begins while a lease of a streamed block is out");
  state_->naming_block([&] {
    state_->check_failed();
    state_->announce(order, access);
  });
}

Lease BlockStore::acquire(BlockId id, Access access) {
  State& state = *state_;
  StoredBlock& block = state.at(id);
  SPILLWAY_CHECK(!block.leased, "a leased block is acquired");
  Lease lease;
  lease.bytes_ = state.naming_block([&] {
    state.check_failed();
    return block.home == Tier::kHost ? state.space.memory(block.offset, block.bytes) : state.take(id, block, access);
  });
  block.leased = true;
  lease.id_ = id;
  lease.access_ = access;
  lease.fresh_ = !block.written;
  lease.store_ = this;
  return lease;
}

void BlockStore::release(BlockId id, Access access, bool dirty) {
  State& state = *state_;
  StoredBlock& block = state.at(id);
  block.leased = false;
  if (block.home == Tier::kDisk) {
    state.naming_block([&] { state.give_back(id, block, dirty); });
  } else if (dirty) {
    block.written = true;
  } else if (access != Access::kRead && !block.written) {
    // Given up half-way: a block that was never written stays one of zeros.
    const auto bytes = state.space.memory(block.offset, block.bytes);
    std::memset(bytes.data(), 0, bytes.size());
  }
}

void BlockStore::flush() {
  state_->naming_block([&] {
    state_->check_failed();
    state_->transfers.wait_for_writes();
  });
}

std::uint64_t BlockStore::block_bytes(BlockId id) const { return state_->at(id).bytes; }

const BlockStoreOptions& BlockStore::options() const noexcept { return state_->options; }

}  // namespace spillway::offload

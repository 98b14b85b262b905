#include <spillway/offload/block_store.hpp>

#include <mutex>
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
  SPILLWAY_CHECK(bytes > 0, "a block of no bytes");
  SPILLWAY_CHECK(home == Tier::kHost || home == Tier::kDisk, "a block lives in host memory or on disk");
  SPILLWAY_CHECK(home == Tier::kHost || bytes <= state_->options.slot_bytes, "a block on disk is larger than a slot");
  return state_->naming_block([&] { return state_->add(bytes, home, std::move(label)); });
}

void BlockStore::remove(BlockId id) { state_->remove(id); }

void BlockStore::set_home(BlockId id, Tier home) {
  SPILLWAY_CHECK(home == Tier::kHost || home == Tier::kDisk, "a block lives in host memory or on disk");
  state_->naming_block([&] { state_->set_home(id, home); });
}

Tier BlockStore::home(BlockId id) const {
  const std::lock_guard lock(state_->mutex);
  return state_->at(id).home;
}

void BlockStore::begin(std::span<const BlockId> order, Access access) {
  state_->naming_block([&] {
    const std::lock_guard lock(state_->mutex);
    SPILLWAY_CHECK(state_->leased_slots == 0, "a pass begins while a lease of a streamed block is out");
    state_->check_failed();
    state_->announce(order, access);
  });
}

Lease BlockStore::acquire(BlockId id, Access access) {
  const State::Held held = state_->naming_block([&] { return state_->acquire(id, access); });
  Lease lease;
  lease.bytes_ = held.bytes;
  lease.fresh_ = held.fresh;
  lease.id_ = id;
  lease.access_ = access;
  lease.store_ = this;
  return lease;
}

void BlockStore::release(BlockId id, Access access, bool dirty) {
  state_->naming_block([&] { state_->release(id, access, dirty); });
}

void BlockStore::read_pages(std::span<const PageRun> runs) {
  state_->naming_block([&] { state_->read_pages(runs); });
}

void BlockStore::flush() {
  state_->naming_block([&] {
    State::Lock lock(state_->mutex);
    state_->check_failed();
    state_->wait_for_writes(lock);
  });
}

void BlockStore::commit() {
  state_->naming_block([&] { state_->commit(); });
}

void BlockStore::roll_back() { state_->roll_back(); }

void BlockStore::close() { state_->close(); }

std::size_t BlockStore::waiting() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting.size();
}

std::uint64_t BlockStore::block_bytes(BlockId id) const {
  const std::lock_guard lock(state_->mutex);
  return state_->at(id).bytes;
}

const BlockStoreOptions& BlockStore::options() const noexcept { return state_->options; }

}  // namespace spillway::offload

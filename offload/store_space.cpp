#include <spillway/offload/store_space.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::offload {

StoreSpace::StoreSpace(Tiers& tiers, const BlockStoreOptions& options)
    : tiers_(tiers),
      name_(options.name),
      slot_bytes_(page_ceil(options.slot_bytes)),
      ring_bytes_(slot_bytes_ * options.ring_slots),
      resident_reservation_(tiers.host().reserve(page_ceil(options.resident_bytes), options.name + " resident")),
      ring_reservation_(tiers.host().reserve(ring_bytes_, options.name + " ring")) {
  const std::uint64_t resident_bytes = page_ceil(options.resident_bytes);
  slab_ = PinnedBlock(ring_bytes_ + resident_bytes, tiers.options().pin_memory);
  if (!slab_.note().empty()) {
    tiers.log(slab_.note());
  }
  memory_.extents = ExtentMap(resident_bytes);
  if (options.disk_bytes > 0) {
    swap_ = tiers.take_swap(options.disk_bytes, options.name);
    disk_.extents = ExtentMap(swap_.bytes);
    try {
      tiers.register_memory(slab_.bytes());
    } catch (...) {
      tiers.give_back_swap(std::move(swap_));
      throw;
    }
  }
}

StoreSpace::~StoreSpace() {
  for (const Pool* pool : {&memory_, &disk_}) {
    for (const Retired& range : pool->retired) {
      range.until.settle();
    }
  }
  if (swap_.bytes > 0) {
    tiers_.unregister_memory(slab_.bytes());
    tiers_.give_back_swap(std::move(swap_));
  }
}

std::span<std::byte> StoreSpace::slot(unsigned index) const noexcept {
  return slab_.bytes().subspan(slot_bytes_ * index, slot_bytes_);
}

std::span<std::byte> StoreSpace::memory(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  return slab_.bytes().subspan(ring_bytes_ + offset, bytes);
}

std::uint64_t StoreSpace::allocate_memory(std::uint64_t bytes, const Wait& wait) {
  const std::uint64_t padded = page_ceil(bytes);
  const std::uint64_t offset = allocate(memory_, padded, wait, Tier::kHost);
  if (offset < untouched_from_) {
    const auto used = memory(offset, std::min(padded, untouched_from_ - offset));
    std::memset(used.data(), 0, used.size());
  }
  untouched_from_ = std::max(untouched_from_, offset + padded);
  return offset;
}

std::uint64_t StoreSpace::allocate_disk(std::uint64_t bytes, const Wait& wait) {
  return swap_.offset + allocate(disk_, page_ceil(bytes), wait, Tier::kDisk);
}

void StoreSpace::retire_memory(std::uint64_t offset, std::uint64_t bytes, const Ticket& until) {
  retire(memory_, offset, page_ceil(bytes), until);
}

void StoreSpace::retire_disk(std::uint64_t offset, std::uint64_t bytes, const Ticket& until) {
  retire(disk_, offset - swap_.offset, page_ceil(bytes), until);
}

std::uint64_t StoreSpace::allocate(Pool& pool, std::uint64_t bytes, const Wait& wait, Tier tier) const {
  const auto free_ended = [&pool] {
    std::erase_if(pool.retired, [&pool](const Retired& range) {
      const bool ended = range.until.done();
      if (ended) {
        pool.extents.free(range.offset, range.bytes);
      }
      return ended;
    });
  };
  free_ended();
  auto offset = pool.extents.try_allocate(bytes);
  while (!offset && !pool.retired.empty()) {
    wait(Ticket(pool.retired.front().until));  // A copy: others may use the store meanwhile.
    free_ended();
    offset = pool.extents.try_allocate(bytes);
  }
  if (!offset) {
    throw BudgetExceeded(name_ + " has no room left for a block of " + format_bytes(bytes) + " on " +
                         std::string(to_string(tier)) + ": of " + format_bytes(pool.extents.total_bytes()) + " " +
                         format_bytes(pool.extents.free_bytes()) + " are free, the longest piece " +
                         format_bytes(pool.extents.longest_free_bytes()) + "; give it more " +
                         (tier == Tier::kHost ? "host memory" : "swap space") + " at construction");
  }
  return *offset;
}

void StoreSpace::retire(Pool& pool, std::uint64_t offset, std::uint64_t bytes, const Ticket& until) {
  if (until && !until.done()) {
    pool.retired.push_back({offset, bytes, until});
  } else {
    pool.extents.free(offset, bytes);
  }
}

}  // namespace spillway::offload

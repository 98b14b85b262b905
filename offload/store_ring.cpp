#include <spillway/offload/store_ring.hpp>

#include <algorithm>
#include <utility>

#include <spillway/offload/check.hpp>

namespace spillway::offload {

void StoreRing::add(std::span<std::byte> memory) {
  free_.push_back(static_cast<std::uint32_t>(slots_.size()));
  slots_.push_back({.memory = memory, .last = {}, .emptied = {}, .sum = {}, .filled = {}, .block = {}});
}

std::uint32_t StoreRing::take() {
  SPILLWAY_CHECK(!free_.empty(), "no buffer is free");
  const std::uint32_t index = free_.front();
  free_.pop_front();
  slots_[index].free = false;
  return index;
}

void StoreRing::take(std::uint32_t index) {
  SPILLWAY_CHECK(slots_[index].free, "a buffer is taken twice");
  free_.erase(std::find(free_.begin(), free_.end(), index));
  slots_[index].free = false;
}

void StoreRing::give_back(std::uint32_t index) {
  SPILLWAY_CHECK(!slots_[index].free, "a buffer is given back twice");
  free_.push_back(index);
  slots_[index].free = true;
}

bool StoreRing::offers(std::uint32_t index, BlockId block, std::uint64_t generation) const noexcept {
  if (index >= slots_.size()) {
    return false;
  }
  const Slot& slot = slots_[index];
  return slot.free && slot.holds && slot.block == block && slot.generation == generation;
}

void StoreRing::hold(std::uint32_t index, BlockId block, std::uint64_t generation, Ticket filled) {
  Slot& slot = slots_[index];
  slot.holds = true;
  slot.block = block;
  slot.generation = generation;
  slot.filled = std::move(filled);
}

void StoreRing::hold_nothing(std::uint32_t index) {
  slots_[index].holds = false;
  slots_[index].filled = {};
}

void StoreRing::reset() {
  free_.clear();
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    hold_nothing(i);
    slots_[i].last = {};
    slots_[i].emptied = {};
    slots_[i].sum = {};
    slots_[i].free = true;
    free_.push_back(i);
  }
}

}  // namespace spillway::offload

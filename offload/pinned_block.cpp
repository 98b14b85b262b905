#include <spillway/offload/pinned_block.hpp>

#include <utility>

#include <spillway/offload/page_lock.hpp>

namespace spillway::offload {

PinnedBlock::PinnedBlock(std::uint64_t bytes, bool pin) : block_(bytes) {
  if (pin && bytes > 0) {
    PageLock lock = page_lock(block_.bytes());
    pinned_ = lock.locked;
    note_ = std::move(lock.refusal);
  }
}

PinnedBlock::PinnedBlock(PinnedBlock&& other) noexcept
    : block_(std::move(other.block_)),
      pinned_(std::exchange(other.pinned_, false)),
      note_(std::exchange(other.note_, {})) {}

PinnedBlock& PinnedBlock::operator=(PinnedBlock&& other) noexcept {
  std::swap(block_, other.block_);
  std::swap(pinned_, other.pinned_);
  std::swap(note_, other.note_);
  return *this;
}

PinnedBlock::~PinnedBlock() {
  if (pinned_) {
    page_unlock(block_.bytes());
  }
}

}  // namespace spillway::offload

#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <spillway/offload/aligned_block.hpp>

namespace spillway::offload {

/// An AlignedBlock that is page-locked for the GPU where that is wanted and can be had; else it is ordinary memory and
/// everything works on it, slower. It costs what the block costs: the registration rounds nothing up. Move-only.
class PinnedBlock {
 public:
  PinnedBlock() noexcept = default;
  /// @param pin  false: never page-locked. @throws Error if the operating system has no memory left.
  PinnedBlock(std::uint64_t bytes, bool pin);
  PinnedBlock(PinnedBlock&& other) noexcept;
  PinnedBlock& operator=(PinnedBlock&& other) noexcept;
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;
  ~PinnedBlock();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return block_.bytes(); }
  [[nodiscard]] bool pinned() const noexcept { return pinned_; }
  /// Why it is not, although it should be, and what to do; empty otherwise.
  [[nodiscard]] const std::string& note() const noexcept { return note_; }

 private:
  AlignedBlock block_;
  bool pinned_ = false;
  std::string note_;
};

}  // namespace spillway::offload

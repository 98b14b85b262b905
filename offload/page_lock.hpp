#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace spillway::offload {

struct PageLock {
  bool locked = false;
  std::string refusal;  ///< Why not, and what to do; empty also where there is no GPU to lock memory for.
};

/// Locks memory in place and makes it known to the CUDA driver, so that copies between it and a GPU are asynchronous
/// and fast. The memory is page-aligned, and outlives page_unlock. Without CUDA, or without a GPU, nothing happens.
[[nodiscard]] PageLock page_lock(std::span<std::byte> memory);
/// Precondition: page_lock locked exactly this memory.
void page_unlock(std::span<std::byte> memory) noexcept;

}  // namespace spillway::offload

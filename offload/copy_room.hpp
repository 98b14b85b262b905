#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <spillway/offload/error.hpp>

namespace spillway::offload {

/// What every CopyStream checks before it queues a copy. @throws Error.
inline void require_room(std::span<const std::byte> destination, std::span<const std::byte> source) {
  if (destination.size() < source.size()) {
    throw Error("a copy of " + std::to_string(source.size()) + " bytes into a buffer of " +
                std::to_string(destination.size()) + "; the destination must be at least as long as the source");
  }
}

}  // namespace spillway::offload

#pragma once

#include <cstdint>
#include <functional>

namespace spillway::app {

/// Calls `body` with 0 … count - 1 on up to `workers` threads of its own, in any order: for work that waits for files,
/// which must not stand on threads that compute. Blocks until all have ended.
/// @throws what the body with the smallest index threw among those that were called; the rest may be left out then.
void read_each(std::uint64_t count, unsigned workers, const std::function<void(std::uint64_t)>& body);

}  // namespace spillway::app

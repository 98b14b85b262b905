#pragma once

#include <cstdint>
#include <functional>

namespace spillway::offload {

/// Calls `work(begin, end)` for adjoining pieces of [0, total) on a few threads at once and returns when all have
/// ended: as many pieces as the machine has cores, 8 at most, and none below `piece_min`, so that little work starts no
/// thread. `total` and `piece_min` are multiples of `grain`, and so are the bounds of the pieces.
/// @throws what a call threw, the first of them.
void parallel_pieces(std::uint64_t total, std::uint64_t piece_min, std::uint64_t grain,
                     const std::function<void(std::uint64_t begin, std::uint64_t end)>& work);

}  // namespace spillway::offload

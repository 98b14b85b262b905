#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <spillway/offload/tier.hpp>

namespace spillway::offload {

/// What one client of the tiers (optimizer state, bank) wants to store.
struct PlacementRequest {
  std::string name;  ///< For the table in errors: "optimizer state".
  std::span<const std::uint64_t> block_bytes;
  std::uint64_t host_bytes = 0;  ///< Host memory that this client may use, its ring included.
  unsigned ring_slots = 4;       ///< Staging buffers, each as large as the largest streamed block.
  bool disk_allowed = false;     ///< Whether what does not fit in host memory may go to disk.
  bool written_back = true;      ///< Whether each pass also writes each block.
  bool shadow_slots = false;     ///< Whether each block has room for two versions (BlockStoreOptions::shadow_slots).
};

/// Where every block lives, and what a pass over all of them moves.
struct Placement {
  std::vector<Tier> home;                 ///< One per block: kHost or kDisk.
  std::uint64_t resident_bytes = 0;       ///< Host memory of the fixed part, second versions included.
  std::uint64_t ring_bytes = 0;           ///< Host memory of the ring; 0 where nothing is streamed.
  std::uint64_t disk_bytes = 0;           ///< Second versions included.
  std::uint64_t read_bytes_per_pass = 0;  ///< From disk, padding included, once every block has been written.
  std::uint64_t written_bytes_per_pass = 0;
};

/// Keeps as much resident as the host memory allows beside the ring, spread evenly over the access order so that work
/// on resident blocks hides the transfers of the others (for a cyclic scan a fixed part is optimal: LRU would miss
/// every time). Sizes are rounded up to pages. Deterministic.
/// @throws BudgetExceeded with a table (what needs what, what there is, which setting to change) if not even the ring
/// fits, or if not all fits and the disk is not allowed.
[[nodiscard]] Placement place(const PlacementRequest& request);

}  // namespace spillway::offload

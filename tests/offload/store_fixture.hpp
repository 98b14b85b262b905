#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <spillway/offload/block_store.hpp>
#include <spillway/offload/tiers.hpp>

#include "support/memory_engine.hpp"

namespace spillway::test {

/// Tiers over a MemoryEngine, which the test goes on seeing.
struct MemoryTiers {
  explicit MemoryTiers(MemoryEngine::Ending ending, offload::TiersOptions options = {}, std::uint64_t seed = 1) {
    auto owned = std::make_unique<MemoryEngine>(ending, seed);
    engine = owned.get();
    tiers = std::make_shared<offload::Tiers>(std::move(options), std::move(owned));
  }
  MemoryEngine* engine;
  std::shared_ptr<offload::Tiers> tiers;
};

/// A store with `count` blocks of `block_bytes` on disk, and a ring of `ring_slots`. Reads every block of every pass,
/// so that what reaches the disk is what comes back. Has checksums made in the background, unless told otherwise.
struct StreamedStore {
  StreamedStore(std::shared_ptr<offload::Tiers> tiers, std::size_t count, std::uint64_t block_bytes,
                unsigned ring_slots = 4, bool verify_checksums = true, std::uint64_t background_sum_bytes = 1)
      : store(std::move(tiers), {.name = "state",
                                 .ring_slots = ring_slots,
                                 .slot_bytes = block_bytes,
                                 .disk_bytes = count * offload::page_ceil(block_bytes),
                                 .reuse_buffers = false,
                                 .background_sum_bytes = background_sum_bytes,
                                 .verify_checksums = verify_checksums}) {
    for (std::size_t i = 0; i < count; ++i) {
      ids.push_back(store.add(block_bytes, offload::Tier::kDisk, "block " + std::to_string(i)));
    }
  }

  /// One pass that fills block i with bytes of value `first + i`.
  void fill(std::uint8_t first) {
    store.begin(ids, offload::Access::kOverwrite);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      auto lease = store.acquire(ids[i], offload::Access::kOverwrite);
      std::fill(lease.bytes().begin(), lease.bytes().end(), std::byte(first + i));
      lease.release();
    }
  }

  offload::BlockStore store;
  std::vector<offload::BlockId> ids;
};

inline bool all_equal(std::span<const std::byte> bytes, std::uint8_t value) {
  if (bytes.empty()) return true;
  // Every byte equals the next: memcmp is quick in a test that is compiled without optimisation.
  return bytes.front() == std::byte(value) && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace spillway::test

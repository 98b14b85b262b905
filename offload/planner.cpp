#include <spillway/offload/planner.hpp>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::offload {
namespace {

using Sizes = std::vector<std::uint64_t>;

std::uint64_t sum(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}); }

// Ring memory for slots of `slot_bytes`, and the blocks that are too large for them.
struct Floor {
  std::uint64_t ring_bytes = 0;
  std::uint64_t forced_bytes = 0;
  [[nodiscard]] std::uint64_t bytes() const { return ring_bytes + forced_bytes; }
};

// Versions of each block that its tier has room for.
std::uint64_t versions(const PlacementRequest& request) { return request.shadow_slots ? 2 : 1; }

Floor floor_of(const PlacementRequest& request, const Sizes& sizes, std::uint64_t slot_bytes) {
  Floor floor{slot_bytes * request.ring_slots, 0};
  for (const std::uint64_t size : sizes) {
    floor.forced_bytes += size > slot_bytes ? size * versions(request) : 0;
  }
  return floor;
}

// Which blocks stay, given the slot size. What fits is spread by error diffusion: after each block the resident bytes
// are as close below the block's share of the whole as the sizes allow. A second walk fills what rounding left over.
std::vector<Tier> spread(const PlacementRequest& request, const Sizes& sizes, std::uint64_t slot_bytes,
                         const Floor& floor) {
  const std::uint64_t fold = versions(request);
  std::uint64_t left = request.host_bytes - floor.bytes();
  const auto movable = static_cast<double>(sum(sizes) * fold - floor.forced_bytes);
  const double share = std::min(1.0, static_cast<double>(left) / movable);
  std::vector<Tier> home(sizes.size(), Tier::kDisk);
  double due = 0;
  double kept = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto size = static_cast<double>(sizes[i]);
    if (sizes[i] > slot_bytes) {
      home[i] = Tier::kHost;
      continue;
    }
    due += size * share;
    if (kept + size <= due && sizes[i] * fold <= left) {
      home[i] = Tier::kHost;
      kept += size;
      left -= sizes[i] * fold;
    }
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (home[i] == Tier::kDisk && sizes[i] * fold <= left) {
      home[i] = Tier::kHost;
      left -= sizes[i] * fold;
    }
  }
  return home;
}

Placement account(const PlacementRequest& request, const Sizes& sizes, std::vector<Tier> home) {
  Placement placement;
  std::uint64_t slot_bytes = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (home[i] == Tier::kHost) {
      placement.resident_bytes += sizes[i] * versions(request);
    } else {
      placement.disk_bytes += sizes[i] * versions(request);
      placement.read_bytes_per_pass += sizes[i];
      slot_bytes = std::max(slot_bytes, sizes[i]);
    }
  }
  placement.home = std::move(home);
  placement.ring_bytes = slot_bytes * request.ring_slots;
  placement.written_bytes_per_pass = request.written_back ? placement.read_bytes_per_pass : 0;
  return placement;
}

[[noreturn]] void throw_too_small(const PlacementRequest& request, std::uint64_t total, const std::string& need) {
  throw BudgetExceeded(
      "host memory for " + request.name + " is too small: [its " + std::to_string(request.block_bytes.size()) +
      " blocks" + (request.shadow_slots ? ", two versions of each: " : ": ") + format_bytes(total) + "] [" + need +
      "] [there is: " + format_bytes(request.host_bytes) + "]; raise offload.host_bytes (--host-budget)" +
      (request.disk_allowed ? " or make the blocks smaller" : " or let it go to disk (nvme)"));
}

// The slot sizes worth a try, largest first: the largest for which ring and larger blocks fit, then each that is half
// the one before or less. One huge block is thus kept resident rather than multiplied by the slots, but blocks of
// about one size stay interchangeable, as spreading wants it.
std::vector<std::uint64_t> slot_candidates(const PlacementRequest& request, const Sizes& sizes) {
  Sizes distinct(sizes);
  std::sort(distinct.begin(), distinct.end(), std::greater<>());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<std::uint64_t> candidates;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t least_slot = 0;
  for (const std::uint64_t size : distinct) {
    if (!candidates.empty() && size > candidates.back() / 2) {
      continue;
    }
    const std::uint64_t need = floor_of(request, sizes, size).bytes();
    if (need <= request.host_bytes) {
      candidates.push_back(size);
    } else if (need < least) {
      least = need;
      least_slot = size;
    }
  }
  if (candidates.empty()) {
    const Floor floor = floor_of(request, sizes, least_slot);
    std::string need = "its ring of " + std::to_string(request.ring_slots) + " slots of " + format_bytes(least_slot) +
                       ": " + format_bytes(floor.ring_bytes);
    if (floor.forced_bytes > 0) {
      need += "] [blocks larger than a slot: " + format_bytes(floor.forced_bytes);
    }
    throw_too_small(request, sum(sizes) * versions(request), need);
  }
  return candidates;
}

}  // namespace

Placement place(const PlacementRequest& request) {
  SPILLWAY_CHECK(request.ring_slots >= 2, "a ring needs two slots");
  Sizes sizes;
  sizes.reserve(request.block_bytes.size());
  for (const std::uint64_t bytes : request.block_bytes) {
    SPILLWAY_CHECK(bytes > 0, "a block of no bytes");
    sizes.push_back(page_ceil(bytes));
  }
  const std::uint64_t total = sum(sizes) * versions(request);
  if (total <= request.host_bytes) {
    return account(request, sizes, std::vector<Tier>(sizes.size(), Tier::kHost));
  }
  if (!request.disk_allowed) {
    throw_too_small(request, total, "disk: not allowed");
  }
  std::optional<Placement> best;
  for (const std::uint64_t slot_bytes : slot_candidates(request, sizes)) {
    const Floor floor = floor_of(request, sizes, slot_bytes);
    Placement placement = account(request, sizes, spread(request, sizes, slot_bytes, floor));
    if (!best || placement.disk_bytes < best->disk_bytes) {
      best = std::move(placement);
    }
  }
  return *std::move(best);
}

}  // namespace spillway::offload

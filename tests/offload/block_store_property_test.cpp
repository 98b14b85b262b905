// Random use of a store, beside a model that keeps every block in a vector.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <spillway/offload/error.hpp>
#include <spillway/offload/planner.hpp>

#include "store_engines.hpp"
#include "support/property.hpp"

namespace spillway::offload::block_store_property_test {
namespace {

using test::OverEveryEngine;
using test::Random;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kLargest = 3 * kMiB;

std::uint64_t random_size(Random& random) {
  return random.chance(2, 3) ? random.between(1, 10'000) : random.between(1, kLargest);
}

void fill(std::span<std::byte> bytes, Random& random) {
  std::uint64_t state = random.between(1, ~std::uint64_t{0});
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes.data() + i, &state, std::min<std::size_t>(8, bytes.size() - i));
  }
}

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

/// The store and its model, and what a random client may do to both.
class RandomClient {
 public:
  RandomClient(std::shared_ptr<Tiers> tiers, Random& random, const BlockStoreOptions& options)
      : store_(std::move(tiers), options), random_(random) {}

  void step() {
    switch (random_.below(8)) {
      case 0:
      case 1:
        add();
        return;
      case 2:
        move_one();
        return;
      case 3:
        remove_one();
        return;
      case 4:
        use_alone();
        return;
      case 5:
        store_.flush();
        return;
      default:
        pass();
    }
  }

  void check_all() {
    std::vector<BlockId> order;
    for (const Known& known : known_) {
      order.push_back(known.id);
    }
    store_.begin(order, Access::kRead);
    for (const Known& known : known_) {
      const Lease lease = store_.acquire(known.id, Access::kRead);
      ASSERT_TRUE(equal(lease.bytes(), known.contents));
      ASSERT_EQ(lease.fresh(), !known.written);
    }
  }

 private:
  struct Known {
    BlockId id;
    std::vector<std::byte> contents;
    bool written = false;
  };
  struct Held {
    std::size_t index;
    Lease lease;
  };

  Tier any_home() { return random_.chance(1, 2) ? Tier::kHost : Tier::kDisk; }

  void add() {
    const std::uint64_t bytes = random_size(random_);
    try {
      const BlockId id = store_.add(bytes, any_home(), "block " + std::to_string(known_.size()));
      known_.push_back({id, std::vector<std::byte>(bytes), false});
    } catch (const BudgetExceeded&) {
      remove_one();
    }
  }

  void move_one() {
    if (known_.empty()) {
      return;
    }
    const BlockId id = known_[random_.below(known_.size())].id;
    const Tier before = store_.home(id);
    const Tier home = any_home();
    try {
      store_.set_home(id, home);
      ASSERT_EQ(store_.home(id), home);
    } catch (const BudgetExceeded&) {
      ASSERT_EQ(store_.home(id), before);
    }
  }

  void remove_one() {
    if (!known_.empty()) {
      const std::size_t index = random_.below(known_.size());
      store_.remove(known_[index].id);
      known_.erase(known_.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }

  Access any_access() {
    constexpr Access kAll[] = {Access::kRead, Access::kReadWrite, Access::kOverwrite};
    return random_.pick(std::span<const Access>(kAll));
  }

  void use_alone() {
    if (!known_.empty()) {
      const std::size_t index = random_.below(known_.size());
      use(index, any_access(), {});
    }
  }

  void pass() {
    std::vector<std::size_t> indices(known_.size());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      indices[i] = i;
    }
    std::shuffle(indices.begin(), indices.end(), random_.engine());
    indices.resize(random_.below(indices.size() + 1));
    std::vector<BlockId> order;
    for (const std::size_t index : indices) {
      order.push_back(known_[index].id);
    }
    const Access access = any_access();
    const bool to_the_end = random_.chance(3, 4);
    store_.begin(order, access);
    std::vector<Held> held;
    for (const std::size_t index : indices) {
      if (!to_the_end && random_.chance(1, 6)) {
        break;
      }
      while (held.size() + 1 >= store_.options().ring_slots || (!held.empty() && random_.chance(1, 2))) {
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(random_.below(held.size())));
      }
      if (auto lease =
              use(index, access, [this](std::size_t bytes) { return bytes < kLargest && random_.chance(1, 3); })) {
        held.push_back({index, *std::move(lease)});
      }
    }
    held.clear();
    if (!to_the_end) {
      store_.begin({}, Access::kRead);  // Given up: what was announced may change its home now.
    }
  }

  /// Acquires, compares, changes. Gives the lease to the caller where `keep` says so.
  std::optional<Lease> use(std::size_t index, Access access, const std::function<bool(std::size_t)>& keep) {
    Known& known = known_[index];
    Lease lease = store_.acquire(known.id, access);
    EXPECT_EQ(lease.fresh(), !known.written);
    if (access != Access::kOverwrite || lease.fresh() || store_.home(known.id) == Tier::kHost) {
      EXPECT_TRUE(equal(lease.bytes(), known.contents)) << "block " << known.id.value;
    }
    if (access == Access::kRead) {
      return keep && keep(lease.bytes().size()) ? std::optional(std::move(lease)) : std::nullopt;
    }
    const bool in_place = store_.home(known.id) == Tier::kHost && known.written;
    if (!in_place && random_.chance(1, 5)) {
      fill(lease.bytes(), random_);
      lease.abandon();
      return std::nullopt;
    }
    if (access == Access::kOverwrite || random_.chance(1, 2)) {
      fill(lease.bytes(), random_);
    } else {
      lease.bytes()[random_.below(lease.bytes().size())] ^= std::byte{0x5A};
    }
    std::memcpy(known.contents.data(), lease.bytes().data(), known.contents.size());
    known.written = true;
    if (keep && keep(lease.bytes().size())) {
      return lease;
    }
    lease.release();
    return std::nullopt;
  }

  BlockStore store_;
  Random& random_;
  std::vector<Known> known_;
};

class BlockStoreProperty : public OverEveryEngine {};
INSTANTIATE_TEST_SUITE_P(Engines, BlockStoreProperty, test::kEveryEngine,
                         [](const auto& test) { return test::name_of(test.param); });

TEST_P(BlockStoreProperty, AgreesWithAMapOfVectorsUnderRandomUse) {
  test::for_random_seeds(6, [this](Random& random) {
    BlockStoreOptions options{.name = "random",
                              .ring_slots = static_cast<unsigned>(random.between(2, 6)),
                              .slot_bytes = kLargest,
                              .resident_bytes = random.between(0, 12 * kMiB),
                              .disk_bytes = random.between(1, 24 * kMiB)};
    const std::uint64_t reserved = options.ring_slots * kLargest + page_ceil(options.resident_bytes);
    const auto tiers =
        make_tiers({.host_bytes = reserved, .disk_bytes = page_ceil(options.disk_bytes)}, random.between(1, 1000));
    {
      RandomClient client(tiers, random, options);
      for (int i = 0; i < 120 && !testing::Test::HasFailure(); ++i) {
        client.step();
      }
      client.check_all();
    }
    EXPECT_EQ(tiers->host().peak_bytes(), reserved);
    EXPECT_EQ(tiers->host().used_bytes(), 0U);
    EXPECT_EQ(tiers->disk().used_bytes(), 0U);
  });
}

struct Traffic {
  std::uint64_t read;
  std::uint64_t written;
};

Traffic traffic_of(Tiers& tiers) { return {tiers.stats().read_bytes, tiers.stats().written_bytes}; }

// `percent` of the blocks' bytes, and the ring, fit into host memory.
void expect_predicted_traffic(std::shared_ptr<Tiers> tiers, Random& random, const std::vector<std::uint64_t>& sizes,
                              const Placement& placement, unsigned ring_slots) {
  BlockStore store(tiers, {.name = "planned",
                           .ring_slots = ring_slots,
                           .slot_bytes = placement.ring_bytes / ring_slots,
                           .resident_bytes = placement.resident_bytes,
                           .disk_bytes = placement.disk_bytes});
  ASSERT_EQ(tiers->host().used_bytes(), placement.resident_bytes + placement.ring_bytes);
  ASSERT_EQ(tiers->disk().used_bytes(), placement.disk_bytes);
  std::vector<BlockId> ids;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ids.push_back(store.add(sizes[i], placement.home[i], "block " + std::to_string(i)));
  }
  for (int pass = 0; pass < 4; ++pass) {
    const Traffic before = traffic_of(*tiers);
    store.begin(ids, Access::kReadWrite);
    for (const BlockId id : ids) {
      const Lease lease = store.acquire(id, Access::kReadWrite);
      lease.bytes()[random.below(lease.bytes().size())] ^= std::byte{1};
    }
    const Traffic after = traffic_of(*tiers);
    ASSERT_EQ(after.read - before.read, pass == 0 ? 0 : placement.read_bytes_per_pass) << "pass " << pass;
    ASSERT_EQ(after.written - before.written, placement.written_bytes_per_pass) << "pass " << pass;
  }
}

TEST_P(BlockStoreProperty, MovesExactlyTheBytesThatThePlannerPredicts) {
  for (const std::uint64_t percent : {0U, 30U, 100U}) {
    test::for_random_seeds(3, [&](Random& random) {
      std::vector<std::uint64_t> sizes(random.between(10, 30));
      std::uint64_t total = 0;
      for (std::uint64_t& size : sizes) {
        size = random_size(random);
        total += page_ceil(size);
      }
      constexpr unsigned kSlots = 3;
      const std::uint64_t ring = kSlots * page_ceil(*std::max_element(sizes.begin(), sizes.end()));
      const std::uint64_t host_bytes = percent == 100 ? total : ring + total * percent / 100;
      const Placement placement = place({.name = "planned",
                                         .block_bytes = sizes,
                                         .host_bytes = host_bytes,
                                         .ring_slots = kSlots,
                                         .disk_allowed = true});
      const auto tiers = make_tiers({.host_bytes = host_bytes}, random.between(1, 1000));
      expect_predicted_traffic(tiers, random, sizes, placement, kSlots);
      ASSERT_LE(tiers->host().peak_bytes(), host_bytes);
    });
  }
}

TEST_P(BlockStoreProperty, RunsAThousandPassesOverARingOfTwo) {
  const auto tiers = make_tiers({}, 3);
  test::StreamedStore streamed(tiers, 3, 100, 2);
  for (int pass = 0; pass < 1000; ++pass) {
    streamed.store.begin(streamed.ids, Access::kReadWrite);
    for (const BlockId id : streamed.ids) {
      const Lease lease = streamed.store.acquire(id, Access::kReadWrite);
      ASSERT_TRUE(test::all_equal(lease.bytes(), static_cast<std::uint8_t>(pass)));
      std::memset(lease.bytes().data(), static_cast<std::uint8_t>(pass + 1), lease.bytes().size());
    }
  }
  streamed.store.flush();
}

}  // namespace
}  // namespace spillway::offload::block_store_property_test

// Contents that a buffer still holds are handed out again instead of read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <spillway/offload/error.hpp>

#include "store_fixture.hpp"
#include "support/property.hpp"

namespace spillway::offload::block_store_reuse_test {
namespace {

using test::all_equal;
using test::MemoryEngine;
using test::MemoryTiers;
using test::Random;
using Ending = MemoryEngine::Ending;

constexpr std::uint64_t kBlock = kPageBytes;

struct Store {
  explicit Store(std::shared_ptr<Tiers> shared, std::size_t count, unsigned ring_slots, bool verify = true,
                 std::uint64_t background_sum_bytes = 2 * kBlock)
      : tiers(std::move(shared)),
        store(tiers, {.name = "state",
                      .ring_slots = ring_slots,
                      .slot_bytes = kBlock,
                      .resident_bytes = kBlock,
                      .disk_bytes = count * kBlock,
                      .background_sum_bytes = background_sum_bytes,
                      .verify_checksums = verify}) {
    for (std::size_t i = 0; i < count; ++i) {
      ids.push_back(store.add(kBlock, Tier::kDisk, "block " + std::to_string(i)));
    }
    pass(Access::kOverwrite, false);
  }

  /// One pass; a block that is read holds its number plus `value`, and one that is written gets the next value.
  void pass(Access access, bool backwards) {
    std::vector<std::size_t> order(ids.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = backwards ? order.size() - 1 - i : i;
    }
    std::vector<BlockId> blocks;
    for (const std::size_t i : order) {
      blocks.push_back(ids[i]);
    }
    store.begin(blocks, access);
    for (const std::size_t i : order) {
      const Lease lease = store.acquire(ids[i], access);
      if (access != Access::kOverwrite) {
        ASSERT_TRUE(all_equal(lease.bytes(), static_cast<std::uint8_t>(value + i))) << "block " << i;
      }
      if (access != Access::kRead) {
        std::memset(lease.bytes().data(), static_cast<int>(value + 1 + i), kBlock);
      }
    }
    value += access == Access::kRead ? 0 : 1;
  }
  [[nodiscard]] std::uint64_t blocks_read() const { return tiers->stats().read_bytes / kBlock; }
  [[nodiscard]] std::uint64_t blocks_written() const { return tiers->stats().written_bytes / kBlock; }

  std::shared_ptr<Tiers> tiers;
  BlockStore store;
  std::vector<BlockId> ids;
  std::size_t value = 0;
};

TEST(BlockStoreReuse, FindsTheLastBlocksOfAPassInTheRingWhenTheNextOneGoesBack) {
  for (const Access access : {Access::kRead, Access::kReadWrite}) {
    for (const Ending ending : {Ending::kAtOnce, Ending::kOnDemand, Ending::kShuffled}) {
      MemoryTiers memory(ending);
      Store zigzag(memory.tiers, 9, 4);
      for (int pass = 1; pass <= 6; ++pass) {
        zigzag.pass(access, pass % 2 == 1);
        ASSERT_FALSE(testing::Test::HasFatalFailure());
        EXPECT_EQ(zigzag.blocks_read(), static_cast<std::uint64_t>(pass) * (9 - 4)) << "all but those of the ring";
      }
      EXPECT_EQ(zigzag.blocks_written(), access == Access::kRead ? 9U : 7 * 9U) << "clean blocks are not written back";
      EXPECT_THAT(memory.engine->hazards(), testing::IsEmpty());
    }
  }
}

TEST(BlockStoreReuse, ReadsEveryBlockOfAPassThatGoesTheSameWayAgain) {
  for (const std::size_t count : {5U, 6U, 9U}) {
    MemoryTiers memory(Ending::kOnDemand);
    Store cyclic(memory.tiers, count, 4);
    for (int pass = 1; pass <= 3; ++pass) {
      cyclic.pass(Access::kReadWrite, false);
      EXPECT_EQ(cyclic.blocks_read(), static_cast<std::uint64_t>(pass) * count) << "as the planner predicts";
    }
  }
}

TEST(BlockStoreReuse, HandsABlockOverToAReaderWhileItIsOnItsWayToTheDisk) {
  MemoryTiers memory(Ending::kByHand, {.deadline = std::chrono::milliseconds(1)});
  Store one(memory.tiers, 1, 2);
  ASSERT_EQ(memory.engine->in_flight().size(), 1U);
  EXPECT_TRUE(all_equal(one.store.acquire(one.ids[0], Access::kRead).bytes(), 1));
  EXPECT_EQ(one.blocks_read(), 0U);
  EXPECT_EQ(memory.engine->in_flight().size(), 1U) << "nobody waited for the write";
  EXPECT_EQ(memory.tiers->stats().stall_ns, 0U);
  memory.engine->end_all();
}

TEST(BlockStoreReuse, ReadsABlockOnItsWayToTheDiskAgainWhereThatIsSwitchedOff) {  // The control.
  MemoryTiers memory(Ending::kOnDemand);
  test::StreamedStore one(memory.tiers, 1, kBlock, 2);
  one.fill(1);
  EXPECT_TRUE(all_equal(one.store.acquire(one.ids[0], Access::kRead).bytes(), 1));
  EXPECT_EQ(memory.tiers->stats().read_bytes, kBlock);
  EXPECT_THAT(memory.engine->in_flight(), testing::IsEmpty()) << "the read came behind the write";
}

TEST(BlockStoreReuse, LetsAWriterWaitUntilTheFormerContentsAreOnDisk) {
  MemoryTiers memory(Ending::kByHand, {.deadline = std::chrono::milliseconds(1)});
  Store one(memory.tiers, 1, 2);
  EXPECT_THROW(static_cast<void>(one.store.acquire(one.ids[0], Access::kReadWrite)), TimedOut);
  memory.engine->end_all();
  Lease lease = one.store.acquire(one.ids[0], Access::kReadWrite);
  EXPECT_TRUE(all_equal(lease.bytes(), 1));
  std::memset(lease.bytes().data(), 99, kBlock);
  EXPECT_TRUE(all_equal(memory.engine->disk(0, kBlock), 1)) << "the write had its contents before they were changed";
  lease.abandon();
  EXPECT_EQ(one.blocks_read(), 0U);
}

TEST(BlockStoreReuse, TakesUpTheReadsOfAPassThatWasGivenUp) {
  MemoryTiers memory(Ending::kOnDemand);
  Store store(memory.tiers, 8, 3);
  store.store.begin(store.ids, Access::kRead);
  EXPECT_EQ(store.blocks_read(), 3U);
  store.store.begin({}, Access::kRead);
  store.pass(Access::kRead, false);
  EXPECT_EQ(store.blocks_read(), 8U);
}

TEST(BlockStoreReuse, ReadsAgainWhatALeaseThatWasAbandonedMayHaveChanged) {
  MemoryTiers memory(Ending::kAtOnce);
  Store one(memory.tiers, 1, 2);
  Lease lease = one.store.acquire(one.ids[0], Access::kReadWrite);
  std::memset(lease.bytes().data(), 99, kBlock);
  lease.abandon();
  EXPECT_TRUE(all_equal(one.store.acquire(one.ids[0], Access::kRead).bytes(), 1));
  EXPECT_EQ(one.blocks_read(), 1U);
}

TEST(BlockStoreReuse, DoesNotTakeABufferOfAFormerGenerationForTheBlock) {
  MemoryTiers memory(Ending::kOnDemand);
  Store store(memory.tiers, 2, 3);
  const BlockId id = store.ids[0];
  store.store.set_home(id, Tier::kHost);  // Taken from its buffer, which keeps what it has.
  EXPECT_EQ(store.blocks_read(), 0U);
  {
    const Lease lease = store.store.acquire(id, Access::kReadWrite);
    EXPECT_TRUE(all_equal(lease.bytes(), 1));
    std::memset(lease.bytes().data(), 50, kBlock);
  }
  store.store.set_home(id, Tier::kDisk);
  EXPECT_TRUE(all_equal(store.store.acquire(id, Access::kRead).bytes(), 50));
  EXPECT_EQ(store.blocks_read(), 1U) << "the buffer has the generation before";
  store.store.remove(id);
  const BlockId again = store.store.add(kBlock, Tier::kDisk, "a new one");
  ASSERT_EQ(again, id);
  EXPECT_TRUE(store.store.acquire(again, Access::kRead).fresh());
  EXPECT_TRUE(all_equal(store.store.acquire(again, Access::kRead).bytes(), 0));
}

// Whoever writes through a pointer that outlived its lease.
TEST(BlockStoreReuse, RefusesABufferThatWasChangedAfterItHadBeenGivenBack) {
  for (const auto& [verify, background] : {std::pair{true, false}, {false, false}, {true, true}, {false, true}}) {
    MemoryTiers memory(Ending::kAtOnce);
    Store one(memory.tiers, 1, 2, verify, background ? 1 : 2 * kBlock);
    Lease lease = one.store.acquire(one.ids[0], Access::kRead);
    const std::span<std::byte> stale = lease.bytes();
    lease.release();
    stale[17] ^= std::byte{1};
    if (verify) {
      try {
        static_cast<void>(one.store.acquire(one.ids[0], Access::kRead));
        FAIL() << "changed contents were handed out";
      } catch (const Corruption& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("in its buffer"));
      }
      EXPECT_TRUE(all_equal(one.store.acquire(one.ids[0], Access::kRead).bytes(), 1)) << "the disk has them still";
    } else {
      EXPECT_FALSE(all_equal(one.store.acquire(one.ids[0], Access::kRead).bytes(), 1));
    }
  }
}

// A random client's calls, the same for each engine.
std::vector<std::uint64_t> traffic(Ending ending, std::uint64_t seed) {
  Random random(seed);
  MemoryTiers memory(ending, {}, seed + 1);
  std::vector<std::uint64_t> counts;
  Store store(memory.tiers, random.between(2, 12), static_cast<unsigned>(random.between(2, 5)), true,
              random.chance(1, 2) ? 1 : 2 * kBlock);
  for (int i = 0; i < 40; ++i) {
    std::vector<BlockId> order = store.ids;
    std::shuffle(order.begin(), order.end(), random.engine());
    order.resize(random.below(order.size() + 1));
    const Access access = random.chance(1, 2) ? Access::kRead : Access::kReadWrite;
    store.store.begin(order, access);
    const std::size_t stop = random.below(order.size() + 1);
    for (std::size_t k = 0; k < stop; ++k) {
      store.store.acquire(order[k], access).release();
    }
    store.store.begin({}, Access::kRead);
    store.store.acquire(store.ids[random.below(store.ids.size())], access).release();
    counts.push_back(store.blocks_read());
    counts.push_back(store.blocks_written());
  }
  return counts;
}

TEST(BlockStoreReuse, CountsTheSameWhateverTheTimingIs) {
  test::for_random_seeds(10, [](Random& random) {
    const std::uint64_t seed = random.engine()();
    const auto counts = traffic(Ending::kAtOnce, seed);
    EXPECT_EQ(traffic(Ending::kOnDemand, seed), counts);
    EXPECT_EQ(traffic(Ending::kShuffled, seed), counts);
  });
}

}  // namespace
}  // namespace spillway::offload::block_store_reuse_test

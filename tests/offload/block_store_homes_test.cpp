// Blocks that come, go, and change their home; and what the store does with its budgets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <spillway/offload/error.hpp>

#include "store_fixture.hpp"

namespace spillway::offload::block_store_homes_test {
namespace {

using test::all_equal;
using test::MemoryEngine;
using test::MemoryTiers;
using Ending = MemoryEngine::Ending;

constexpr std::uint64_t kBlock = 2 * kPageBytes;

void fill(BlockStore& store, BlockId id, std::uint8_t value) {
  const Lease lease = store.acquire(id, Access::kOverwrite);
  std::memset(lease.bytes().data(), value, lease.bytes().size());
}

bool holds(BlockStore& store, BlockId id, std::uint8_t value) {
  return all_equal(store.acquire(id, Access::kRead).bytes(), value);
}

BlockStoreOptions options(std::uint64_t resident_blocks, std::uint64_t disk_blocks) {
  return {.name = "bank",
          .ring_slots = 2,
          .slot_bytes = kBlock,
          .resident_bytes = resident_blocks * kBlock,
          .disk_bytes = disk_blocks * kBlock,
          .reuse_buffers = false};
}

TEST(BlockStoreHomes, MovesABlockToDiskInTheBackgroundAndBack) {
  MemoryTiers memory(Ending::kOnDemand);
  BlockStore store(memory.tiers, options(2, 2));
  const BlockId id = store.add(kBlock - 7, Tier::kHost, "a");
  fill(store, id, 5);
  store.set_home(id, Tier::kDisk);
  EXPECT_EQ(store.home(id), Tier::kDisk);
  EXPECT_EQ(memory.engine->in_flight().size(), 1U) << "nobody waited";
  EXPECT_TRUE(holds(store, id, 5));
  store.set_home(id, Tier::kHost);
  EXPECT_EQ(store.home(id), Tier::kHost);
  EXPECT_TRUE(holds(store, id, 5));
  EXPECT_EQ(memory.tiers->stats().written_bytes, kBlock);
  EXPECT_EQ(memory.tiers->stats().read_bytes, 2 * kBlock);
  EXPECT_THAT(memory.engine->hazards(), testing::IsEmpty());
}

TEST(BlockStoreHomes, MovesAnUnwrittenBlockWithoutATransfer) {
  MemoryTiers memory(Ending::kByHand);
  BlockStore store(memory.tiers, options(1, 1));
  const BlockId id = store.add(kBlock, Tier::kHost, "a");
  store.set_home(id, Tier::kDisk);
  store.set_home(id, Tier::kHost);
  EXPECT_TRUE(store.acquire(id, Access::kRead).fresh());
  EXPECT_EQ(memory.engine->submitted(), 0U);
}

TEST(BlockStoreHomes, DoesNothingForAHomeThatABlockHas) {
  MemoryTiers memory(Ending::kAtOnce);
  BlockStore store(memory.tiers, options(1, 1));
  const BlockId id = store.add(kBlock, Tier::kHost, "a");
  fill(store, id, 3);
  store.set_home(id, Tier::kHost);
  EXPECT_EQ(memory.engine->submitted(), 0U);
  EXPECT_TRUE(holds(store, id, 3));
}

TEST(BlockStoreHomes, LetsANewBlockWaitForTheMemoryOfOneThatIsLeaving) {
  MemoryTiers memory(Ending::kOnDemand);
  BlockStore store(memory.tiers, options(1, 4));
  for (std::uint8_t value = 1; value <= 4; ++value) {
    const BlockId id = store.add(kBlock, Tier::kHost, std::to_string(value));
    EXPECT_TRUE(holds(store, id, 0)) << "zeros, though the memory was used before";
    fill(store, id, value);
    store.set_home(id, Tier::kDisk);
    EXPECT_EQ(memory.engine->in_flight().size(), 1U) << "the former one has left by now, this one has not";
  }
  EXPECT_GT(memory.tiers->stats().stall_ns, 0U);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(holds(store, BlockId{i}, static_cast<std::uint8_t>(1 + i)));
  }
}

TEST(BlockStoreHomes, RefusesABlockThatFindsNoRoomAndChangesNothing) {
  MemoryTiers memory(Ending::kAtOnce);
  BlockStore store(memory.tiers, options(1, 1));
  const BlockId host = store.add(kBlock, Tier::kHost, "host");
  const BlockId disk = store.add(kBlock, Tier::kDisk, "disk");
  fill(store, host, 1);
  fill(store, disk, 2);
  for (const Tier home : {Tier::kHost, Tier::kDisk}) {
    try {
      static_cast<void>(store.add(1, home, "more"));
      FAIL() << "the store is full";
    } catch (const BudgetExceeded& error) {
      EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("bank"), testing::HasSubstr("4 KiB"),
                                               testing::HasSubstr(std::string(to_string(home)))));
    }
  }
  EXPECT_THROW(store.set_home(host, Tier::kDisk), BudgetExceeded);
  EXPECT_THROW(store.set_home(disk, Tier::kHost), BudgetExceeded);
  EXPECT_EQ(store.home(host), Tier::kHost);
  EXPECT_EQ(store.home(disk), Tier::kDisk);
  EXPECT_TRUE(holds(store, host, 1));
  EXPECT_TRUE(holds(store, disk, 2));
}

TEST(BlockStoreHomes, UsesTheSpaceOfARemovedBlockOnceItsTransfersHaveEnded) {
  MemoryTiers memory(Ending::kOnDemand);
  BlockStore store(memory.tiers, options(1, 1));
  for (int round = 0; round < 20; ++round) {
    const BlockId id = store.add(kBlock, Tier::kDisk, "round " + std::to_string(round));
    EXPECT_TRUE(store.acquire(id, Access::kRead).fresh()) << "contents of a former block";
    fill(store, id, static_cast<std::uint8_t>(round + 1));
    if (round % 2 == 0) {
      EXPECT_TRUE(holds(store, id, static_cast<std::uint8_t>(round + 1)));
    }
    store.remove(id);  // With its write-back in flight in every other round.
  }
  EXPECT_THAT(memory.engine->hazards(), testing::IsEmpty());
}

TEST(BlockStoreHomes, ReservesItsRingAndItsResidentPartUnderItsName) {
  MemoryTiers memory(Ending::kAtOnce, {.host_bytes = 5 * kBlock, .disk_bytes = 4 * kBlock});
  BlockStore store(memory.tiers, options(3, 4));
  const auto rows = memory.tiers->host().rows();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].owner, "bank resident");
  EXPECT_EQ(rows[0].bytes, 3 * kBlock);
  EXPECT_EQ(rows[1].owner, "bank ring");
  EXPECT_EQ(rows[1].bytes, 2 * kBlock);
  EXPECT_EQ(memory.tiers->disk().used_bytes(), 4 * kBlock);
}

TEST(BlockStoreHomes, GivesEverythingBackWhenItsConstructionFails) {
  const auto refuse = [](TiersOptions tiers_options) {
    MemoryTiers memory(Ending::kAtOnce, std::move(tiers_options));
    EXPECT_THROW(BlockStore(memory.tiers, options(3, 4)), BudgetExceeded);
    EXPECT_EQ(memory.tiers->host().used_bytes(), 0U);
    EXPECT_EQ(memory.tiers->disk().used_bytes(), 0U);
    EXPECT_TRUE(memory.engine->registered().empty());
  };
  refuse({.host_bytes = 2 * kBlock});                                // Not even the resident part.
  refuse({.host_bytes = 4 * kBlock});                                // Not the ring beside it.
  refuse({.host_bytes = 5 * kBlock, .disk_bytes = 4 * kBlock - 1});  // Not the swap space.
}

TEST(BlockStoreHomes, NeedsADiskAndTwoSlotsToStream) {
  auto host_only = std::make_shared<Tiers>(TiersOptions{});
  EXPECT_THROW(BlockStore(host_only, options(1, 1)), ConfigError);
  EXPECT_EQ(host_only->host().used_bytes(), 0U);
  BlockStore resident(host_only, {.name = "state", .resident_bytes = kBlock});
  fill(resident, resident.add(kBlock, Tier::kHost, "a"), 1);
  BlockStoreOptions one_slot = options(1, 1);
  one_slot.ring_slots = 1;
  MemoryTiers memory(Ending::kAtOnce);
  EXPECT_THROW(BlockStore(memory.tiers, one_slot), ConfigError);
}

TEST(BlockStoreHomes, OutlivesEveryOtherOwnerOfItsTiers) {
  MemoryTiers memory(Ending::kOnDemand);
  BlockStore store(std::exchange(memory.tiers, nullptr), options(1, 1));
  fill(store, store.add(kBlock, Tier::kDisk, "a"), 1);
}

}  // namespace
}  // namespace spillway::offload::block_store_homes_test

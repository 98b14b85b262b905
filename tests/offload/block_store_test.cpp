#include <spillway/offload/block_store.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <stdexcept>

#include <spillway/offload/error.hpp>

#include "store_fixture.hpp"

namespace spillway::offload::block_store_test {
namespace {

using test::all_equal;
using test::MemoryEngine;
using test::MemoryTiers;
using test::StreamedStore;
using Ending = MemoryEngine::Ending;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(BlockStore, GivesAnUnwrittenBlockAsZerosWithoutATransfer) {
  MemoryTiers memory(Ending::kOnDemand);
  StreamedStore streamed(memory.tiers, 6, 10'000, 2);
  streamed.store.begin(streamed.ids, Access::kReadWrite);
  for (const BlockId id : streamed.ids) {
    const Lease lease = streamed.store.acquire(id, Access::kReadWrite);
    EXPECT_TRUE(lease.fresh());
    EXPECT_EQ(lease.bytes().size(), 10'000U);
    EXPECT_TRUE(all_equal(lease.bytes(), 0));
    std::fill(lease.bytes().begin(), lease.bytes().end(), std::byte{7});  // Dirties the slot for the next one.
  }
  EXPECT_EQ(memory.tiers->stats().read_bytes, 0U);
  EXPECT_EQ(memory.tiers->stats().written_bytes, 6 * page_ceil(10'000));
}

TEST(BlockStore, ReturnsWhatWasWrittenAndIsNotFreshThen) {
  MemoryTiers memory(Ending::kOnDemand);
  StreamedStore streamed(memory.tiers, 9, kMiB + 1, 3);
  streamed.fill(1);
  streamed.store.begin(streamed.ids, Access::kRead);
  for (std::size_t i = 0; i < streamed.ids.size(); ++i) {
    const Lease lease = streamed.store.acquire(streamed.ids[i], Access::kRead);
    EXPECT_FALSE(lease.fresh());
    EXPECT_TRUE(all_equal(lease.bytes(), static_cast<std::uint8_t>(1 + i))) << "block " << i;
  }
}

TEST(BlockStore, LeavesTheDiskAsItWasWhenALeaseIsAbandoned) {
  MemoryTiers memory(Ending::kAtOnce);
  StreamedStore streamed(memory.tiers, 3, 5000);
  streamed.fill(1);
  const auto written = memory.tiers->stats().written_bytes.load();
  Lease lease = streamed.store.acquire(streamed.ids[1], Access::kReadWrite);
  std::fill(lease.bytes().begin(), lease.bytes().end(), std::byte{99});
  lease.abandon();
  EXPECT_FALSE(lease);
  EXPECT_EQ(memory.tiers->stats().written_bytes, written);
  EXPECT_TRUE(all_equal(streamed.store.acquire(streamed.ids[1], Access::kRead).bytes(), 2));
}

TEST(BlockStore, ResetsAnUnwrittenResidentBlockWhoseLeaseIsAbandoned) {
  MemoryTiers memory(Ending::kAtOnce);
  BlockStore store(memory.tiers, {.name = "state", .resident_bytes = 4096});
  const BlockId id = store.add(100, Tier::kHost, "a");
  Lease lease = store.acquire(id, Access::kReadWrite);
  std::fill(lease.bytes().begin(), lease.bytes().end(), std::byte{99});
  lease.abandon();
  lease = store.acquire(id, Access::kRead);
  EXPECT_TRUE(lease.fresh());
  EXPECT_TRUE(all_equal(lease.bytes(), 0));
}

TEST(BlockStore, KeepsResidentBlocksWithoutTransfersAndServesThemAtAnyTime) {
  MemoryTiers memory(Ending::kByHand);
  BlockStore store(memory.tiers, {.name = "state", .slot_bytes = 4096, .resident_bytes = 8192, .disk_bytes = 4096});
  const BlockId host = store.add(4000, Tier::kHost, "host");
  const BlockId disk = store.add(4000, Tier::kDisk, "disk");
  store.begin(std::vector{disk, host}, Access::kReadWrite);
  Lease lease = store.acquire(host, Access::kReadWrite);  // Before its turn, and read where the pass writes.
  std::memset(lease.bytes().data(), 5, lease.bytes().size());
  lease.release();
  EXPECT_TRUE(all_equal(store.acquire(host, Access::kRead).bytes(), 5));
  EXPECT_EQ(memory.engine->submitted(), 0U);
}

TEST(BlockStore, AlignsEveryLeaseToPages) {
  MemoryTiers memory(Ending::kAtOnce);
  BlockStore store(memory.tiers,
                   {.name = "state", .slot_bytes = 4097, .resident_bytes = 3 * 4096, .disk_bytes = 2 * 4096});
  for (const auto& [bytes, home] : {std::pair{1U, Tier::kHost}, {4097U, Tier::kDisk}, {13U, Tier::kHost}}) {
    const Lease lease = store.acquire(store.add(bytes, home, "x"), Access::kRead);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(lease.bytes().data()) % kPageBytes, 0U);
  }
}

TEST(BlockStore, WritesZerosBehindTheContents) {
  MemoryTiers memory(Ending::kAtOnce);
  BlockStore store(memory.tiers, {.name = "state", .ring_slots = 2, .slot_bytes = 4096, .disk_bytes = 2 * 4096});
  const BlockId large = store.add(4096, Tier::kDisk, "large");
  const BlockId small = store.add(10, Tier::kDisk, "small");
  for (int pass = 0; pass < 2; ++pass) {
    for (const BlockId id : {large, small}) {
      const Lease lease = store.acquire(id, Access::kOverwrite);
      std::memset(lease.bytes().data(), 0xFF, lease.bytes().size());
    }
  }
  EXPECT_TRUE(all_equal(memory.engine->disk(4096, 10), 0xFF));
  EXPECT_TRUE(all_equal(memory.engine->disk(4106, 4086), 0)) << "stale memory reached the disk";
}

TEST(BlockStore, GivesUpAPassThatANewOneReplaces) {
  MemoryTiers memory(Ending::kOnDemand);
  StreamedStore streamed(memory.tiers, 8, 5000, 3);
  streamed.fill(1);
  streamed.store.begin(streamed.ids, Access::kReadWrite);
  streamed.store.acquire(streamed.ids[0], Access::kReadWrite).release();
  const std::vector reversed(streamed.ids.rbegin(), streamed.ids.rend());
  streamed.store.begin(reversed, Access::kRead);
  for (std::size_t i = 0; i < reversed.size(); ++i) {
    EXPECT_TRUE(
        all_equal(streamed.store.acquire(reversed[i], Access::kRead).bytes(), static_cast<std::uint8_t>(8 - i)));
  }
  EXPECT_THAT(memory.engine->hazards(), testing::IsEmpty());
}

TEST(BlockStore, LetsLeasesOfOnePassBeDroppedInAnyOrder) {
  MemoryTiers memory(Ending::kOnDemand);
  StreamedStore streamed(memory.tiers, 8, 5000, 4);
  streamed.fill(1);
  streamed.store.begin(streamed.ids, Access::kReadWrite);
  std::vector<Lease> out;
  for (std::size_t i = 0; i < streamed.ids.size(); ++i) {
    if (out.size() == 3) {
      out.erase(out.begin() + 1);
    }
    out.push_back(streamed.store.acquire(streamed.ids[i], Access::kReadWrite));
    EXPECT_TRUE(all_equal(out.back().bytes(), static_cast<std::uint8_t>(1 + i)));
    std::memset(out.back().bytes().data(), static_cast<int>(101 + i), out.back().bytes().size());
  }
  out.clear();
  for (std::size_t i = 0; i < streamed.ids.size(); ++i) {
    EXPECT_TRUE(
        all_equal(streamed.store.acquire(streamed.ids[i], Access::kRead).bytes(), static_cast<std::uint8_t>(101 + i)));
  }
}

TEST(Lease, ReleasesItsBlockOnceHoweverItIsMoved) {
  MemoryTiers memory(Ending::kAtOnce);
  StreamedStore streamed(memory.tiers, 3, 4096, 3);
  Lease first = streamed.store.acquire(streamed.ids[0], Access::kOverwrite);
  Lease second(std::move(first));
  EXPECT_FALSE(first);
  EXPECT_TRUE(first.bytes().empty());
  Lease& itself = second;
  second = std::move(itself);
  ASSERT_TRUE(second);
  EXPECT_EQ(memory.engine->submitted(), 0U) << "nobody has released it yet";
  second = streamed.store.acquire(streamed.ids[1], Access::kOverwrite);
  EXPECT_EQ(memory.engine->submitted(), 1U) << "the one that was overwritten is released";
  second.release();
  second.release();
  EXPECT_EQ(memory.engine->submitted(), 2U);
}

TEST(BlockStore, CountsTimeThatACallerWaitedAsStallAndNoneWhereTheTransferWasHidden) {
  MemoryTiers memory(Ending::kAtOnce);
  StreamedStore streamed(memory.tiers, 4, 4096);
  streamed.fill(1);
  streamed.store.begin(streamed.ids, Access::kRead);
  static_cast<void>(streamed.store.acquire(streamed.ids[0], Access::kRead));
  EXPECT_EQ(memory.tiers->stats().stall_ns, 0U);
  streamed.store.begin({}, Access::kRead);
  memory.engine->set_ending(Ending::kOnDemand);
  static_cast<void>(streamed.store.acquire(streamed.ids[0], Access::kRead));
  EXPECT_GT(memory.tiers->stats().stall_ns, 0U);
}

TEST(BlockStore, HasNothingInFlightAfterAFlush) {
  MemoryTiers memory(Ending::kOnDemand);
  StreamedStore streamed(memory.tiers, 3, 4096);
  streamed.fill(1);
  EXPECT_THAT(memory.engine->in_flight(), testing::Not(testing::IsEmpty()));
  streamed.store.flush();
  EXPECT_THAT(memory.engine->in_flight(), testing::IsEmpty());
}

TEST(BlockStoreDeathTest, EndsTheProcessOnMisuse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  MemoryTiers memory(Ending::kAtOnce);
  StreamedStore streamed(memory.tiers, 4, 4096, 3);
  BlockStore& store = streamed.store;
  const auto& ids = streamed.ids;
  EXPECT_DEATH(static_cast<void>(store.acquire(BlockId{99}, Access::kRead)), "no such block");
  EXPECT_DEATH(store.begin(std::vector{ids[0], ids[0]}, Access::kRead), "twice in the order");
  EXPECT_DEATH(static_cast<void>(store.add(4097, Tier::kDisk, "x")), "larger than a slot");
  store.begin(ids, Access::kRead);
  EXPECT_DEATH(static_cast<void>(store.acquire(ids[1], Access::kRead)), "out of the announced order");
  EXPECT_DEATH(static_cast<void>(store.acquire(ids[0], Access::kReadWrite)), "another access");
  EXPECT_DEATH(store.remove(ids[3]), "has yet to come");
  EXPECT_DEATH(store.set_home(ids[3], Tier::kHost), "has yet to come");
  const Lease first = store.acquire(ids[0], Access::kRead);
  const Lease second = store.acquire(ids[1], Access::kRead);
  EXPECT_DEATH(static_cast<void>(store.acquire(ids[2], Access::kRead)), "too many leases");
  EXPECT_DEATH(store.begin(ids, Access::kRead), "while a lease");
  EXPECT_DEATH(store.remove(ids[0]), "leased block");
}

}  // namespace
}  // namespace spillway::offload::block_store_test

// Shadow slots: what was committed stays until the next commit, whatever happens to what replaces it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <spillway/offload/error.hpp>
#include <spillway/offload/thread_engine.hpp>

#include "store_fixture.hpp"
#include "support/faulty_engine.hpp"
#include "support/temp_dir.hpp"

namespace spillway::offload::block_store_versions_test {
namespace {

using test::all_equal;
using test::MemoryEngine;
using test::MemoryTiers;
using Ending = MemoryEngine::Ending;
using Fate = MemoryEngine::Fate;

constexpr std::uint64_t kBlock = 2 * kPageBytes;
constexpr std::size_t kCount = 6;

bool is_write(const IoRequest& request) { return request.operation == IoRequest::Operation::kWrite; }

/// Four blocks on disk and two in memory.
struct Versioned {
  explicit Versioned(std::shared_ptr<Tiers> tiers, bool shadow_slots = true)
      : store(std::move(tiers), {.name = "state",
                                 .ring_slots = 3,
                                 .slot_bytes = kBlock,
                                 .resident_bytes = 2 * 2 * kBlock,
                                 .disk_bytes = 2 * kCount * kBlock,
                                 .shadow_slots = shadow_slots}) {
    for (std::size_t i = 0; i < kCount; ++i) {
      ids.push_back(store.add(kBlock - 3, i % 3 == 0 ? Tier::kHost : Tier::kDisk, "block " + std::to_string(i)));
    }
  }
  void step(std::uint8_t value, std::size_t count = kCount) {
    store.begin(std::span(ids).first(count), Access::kReadWrite);
    for (std::size_t i = 0; i < count; ++i) {
      const Lease lease = store.acquire(ids[i], Access::kReadWrite);
      std::memset(lease.bytes().data(), value, lease.bytes().size());
    }
  }
  void expect(std::uint8_t value) {
    store.begin(ids, Access::kRead);
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_TRUE(all_equal(store.acquire(ids[i], Access::kRead).bytes(), value)) << "block " << i;
    }
    store.begin({}, Access::kRead);
  }
  BlockStore store;
  std::vector<BlockId> ids;
};

TEST(BlockStoreVersions, RollsEveryBlockBackToTheLastCommit) {
  for (const Ending ending : {Ending::kAtOnce, Ending::kOnDemand, Ending::kShuffled}) {
    MemoryTiers memory(ending);
    Versioned versioned(memory.tiers);
    versioned.step(1);
    versioned.store.commit();
    for (std::uint8_t round = 2; round < 8; ++round) {
      versioned.step(static_cast<std::uint8_t>(100 + round), 1 + round % kCount);
      versioned.step(static_cast<std::uint8_t>(150 + round), 1 + (round + 2) % kCount);
      versioned.store.roll_back();
      versioned.expect(static_cast<std::uint8_t>(round - 1));
      versioned.step(round);
      versioned.store.commit();
      versioned.expect(round);
    }
    EXPECT_THAT(memory.engine->hazards(), testing::IsEmpty());
  }
}

TEST(BlockStoreVersions, RollsBackToZerosWhereNothingWasCommitted) {
  MemoryTiers memory(Ending::kOnDemand);
  Versioned versioned(memory.tiers);
  versioned.step(7);
  versioned.store.roll_back();
  for (const BlockId id : versioned.ids) {
    EXPECT_TRUE(versioned.store.acquire(id, Access::kRead).fresh());
  }
  versioned.expect(0);
}

TEST(BlockStoreVersions, NeverWritesOverWhatIsCommitted) {
  MemoryTiers memory(Ending::kAtOnce);
  Versioned versioned(memory.tiers);
  std::uint64_t wrote_over = 0;
  versioned.step(1);
  versioned.store.commit();
  std::vector<std::uint64_t> committed;  // Where the last committed version of each block lies on disk.
  std::vector<std::uint64_t> written;
  memory.engine->set_fate([&](std::uint64_t, const IoRequest& request) {
    if (is_write(request)) {
      written.push_back(request.offset);
      wrote_over += std::find(committed.begin(), committed.end(), request.offset) != committed.end() ? 1 : 0;
    }
    return Fate::kDone;
  });
  for (std::uint8_t value = 2; value < 10; ++value) {
    written.clear();
    versioned.step(static_cast<std::uint8_t>(value + 100));
    versioned.step(value);
    if (value % 3 == 0) {
      versioned.store.roll_back();
    } else {
      versioned.store.commit();
      committed = written;
    }
  }
  EXPECT_EQ(wrote_over, 0U);
}

TEST(BlockStoreVersions, KeepsTheCommittedVersionWhicheverWriteFails) {
  bool met = true;
  std::uint64_t n = 1;
  for (; met; ++n) {
    MemoryTiers memory(Ending::kShuffled, {}, n);
    Versioned versioned(memory.tiers);
    versioned.step(1);
    versioned.store.commit();
    const std::uint64_t before = memory.engine->submitted();
    met = false;
    memory.engine->set_fate(
        [&](std::uint64_t number, const IoRequest& request) {
          const bool fails = is_write(request) && number == before + n;
          met = met || number >= before + n;
          return fails ? Fate::kFailed : Fate::kDone;
        },
        false);  // The engine mends itself.
    try {
      versioned.step(2);
      versioned.step(3);
      versioned.store.commit();
      versioned.expect(3);
      continue;
    } catch (const IoError&) {
    }
    memory.engine->set_fate({}, false);
    versioned.store.roll_back();
    versioned.expect(1);
    versioned.step(4);
    versioned.store.commit();
    versioned.expect(4);
  }
  EXPECT_GT(n, 14U);
}

// A write that reports success and moved only half: noticed when it is read, and the version before is still whole.
// Without shadow slots it has destroyed the only copy.
TEST(BlockStoreVersions, KeepsTheCommittedVersionWhereAWriteIsTorn) {
  for (const bool shadow_slots : {true, false}) {
    const test::TempDir folder;
    auto owned = std::make_unique<test::FaultyEngine>(std::make_unique<ThreadEngine>(EngineOptions{}));
    test::FaultyEngine& engine = *owned;
    const auto tiers = std::make_shared<Tiers>(
        TiersOptions{.nvme_path = folder.path().string(), .log = [](const std::string&) {}}, std::move(owned));
    Versioned versioned(tiers, shadow_slots);
    versioned.step(1);
    versioned.store.flush();
    if (shadow_slots) {
      versioned.store.commit();
    }
    engine.inject({.kind = test::FaultKind::kTear, .nth = 1, .only = IoRequest::Operation::kWrite});
    versioned.step(2);
    versioned.store.flush();
    const auto read_all = [&] {
      for (const BlockId id : versioned.ids) {
        static_cast<void>(versioned.store.acquire(id, Access::kRead));
      }
    };
    ASSERT_EQ(engine.log().size(), 1U);
    EXPECT_THROW(read_all(), Corruption);
    if (shadow_slots) {
      versioned.store.roll_back();
      versioned.expect(1);
    } else {
      EXPECT_THROW(read_all(), Corruption) << "and again: nothing is left to go back to";
    }
  }
}

TEST(BlockStoreVersions, DoesNotCommitWhatDidNotReachTheDisk) {
  MemoryTiers memory(Ending::kOnDemand);
  Versioned versioned(memory.tiers);
  versioned.step(1);
  versioned.store.commit();
  EXPECT_THAT(memory.engine->in_flight(), testing::IsEmpty()) << "a commit waits for it";
  memory.engine->set_fate([](std::uint64_t, const IoRequest& r) { return is_write(r) ? Fate::kFailed : Fate::kDone; },
                          false);
  Lease lease = versioned.store.acquire(versioned.ids[1], Access::kReadWrite);
  std::memset(lease.bytes().data(), 2, lease.bytes().size());
  lease.release();
  EXPECT_THROW(versioned.store.commit(), IoError);
  memory.engine->set_fate({}, false);
  versioned.store.roll_back();
  versioned.expect(1);
}

TEST(BlockStoreVersions, DoesNotTakeABufferWithARolledBackVersionForItsSuccessor) {
  MemoryTiers memory(Ending::kOnDemand);
  Versioned versioned(memory.tiers);
  const auto write = [&](std::uint8_t value) {
    const Lease lease = versioned.store.acquire(versioned.ids[1], Access::kReadWrite);
    std::memset(lease.bytes().data(), value, lease.bytes().size());
  };
  write(1);
  versioned.store.commit();
  write(2);
  versioned.store.roll_back();
  EXPECT_TRUE(all_equal(versioned.store.acquire(versioned.ids[1], Access::kRead).bytes(), 1));
  write(3);
  EXPECT_TRUE(all_equal(versioned.store.acquire(versioned.ids[1], Access::kRead).bytes(), 3));
  versioned.store.roll_back();
  EXPECT_TRUE(all_equal(versioned.store.acquire(versioned.ids[1], Access::kRead).bytes(), 1));
}

TEST(BlockStoreVersions, TakesUpTwiceTheRoomOnItsTier) {
  MemoryTiers memory(Ending::kAtOnce);
  BlockStore store(memory.tiers, {.name = "state",
                                  .ring_slots = 2,
                                  .slot_bytes = kBlock,
                                  .resident_bytes = 3 * kBlock,
                                  .disk_bytes = 3 * kBlock,
                                  .shadow_slots = true});
  for (const Tier home : {Tier::kHost, Tier::kDisk}) {
    const BlockId id = store.add(kBlock, home, "a");
    EXPECT_THROW(static_cast<void>(store.add(kBlock, home, "b")), BudgetExceeded);
    store.remove(id);
    static_cast<void>(store.add(kBlock, home, "c"));
  }
}

TEST(BlockStoreVersions, MovesCommittedBlocksBetweenTheTiers) {
  MemoryTiers memory(Ending::kOnDemand);
  Versioned versioned(memory.tiers);
  versioned.step(1);
  versioned.store.commit();
  versioned.store.set_home(versioned.ids[0], Tier::kDisk);
  versioned.store.set_home(versioned.ids[1], Tier::kHost);
  versioned.step(2);
  versioned.store.roll_back();
  versioned.expect(1);
  EXPECT_EQ(versioned.store.home(versioned.ids[0]), Tier::kDisk);
}

TEST(BlockStoreVersionsDeathTest, EndsTheProcessOnMisuse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  MemoryTiers memory(Ending::kAtOnce);
  Versioned versioned(memory.tiers);
  test::StreamedStore plain(memory.tiers, 1, kBlock);
  EXPECT_DEATH(plain.store.commit(), "nothing to commit");
  EXPECT_DEATH(plain.store.roll_back(), "nothing to roll back");
  versioned.step(1);
  EXPECT_DEATH(versioned.store.set_home(versioned.ids[0], Tier::kDisk), "since the last commit");
  const Lease lease = versioned.store.acquire(versioned.ids[0], Access::kRead);
  EXPECT_DEATH(versioned.store.commit(), "while a lease is out");
  EXPECT_DEATH(versioned.store.roll_back(), "while a lease is out");
}

}  // namespace
}  // namespace spillway::offload::block_store_versions_test

// Every transfer fails once, in turn: the caller learns it, nothing hangs, nothing wrong is handed out, nothing leaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <spillway/offload/error.hpp>
#include <spillway/offload/thread_engine.hpp>

#include "store_fixture.hpp"
#include "support/faulty_engine.hpp"
#include "support/temp_dir.hpp"

namespace spillway::offload::block_store_fault_test {
namespace {

using test::all_equal;
using test::MemoryEngine;
using test::MemoryTiers;
using Ending = MemoryEngine::Ending;
using Fate = MemoryEngine::Fate;

constexpr std::uint64_t kBlock = 3 * kPageBytes;

void one_pass(BlockStore& store, const std::vector<BlockId>& ids, std::uint8_t expected) {
  store.begin(ids, Access::kReadWrite);
  for (const BlockId id : ids) {
    Lease lease = store.acquire(id, Access::kReadWrite);
    ASSERT_TRUE(all_equal(lease.bytes(), expected)) << "wrong contents were handed out";
    std::memset(lease.bytes().data(), expected + 1, lease.bytes().size());
    lease.release();
  }
}

// A client's life: passes, a block that moves to disk, one that moves to the host, one that goes. All that it writes
// is waited for in the end, so that no failure can go unnoticed.
void live(std::shared_ptr<Tiers> tiers, bool sums_in_background) {
  BlockStore store(std::move(tiers), {.name = "state",
                                      .ring_slots = 3,
                                      .slot_bytes = kBlock,
                                      .resident_bytes = 2 * kBlock,
                                      .disk_bytes = 7 * kBlock,
                                      .reuse_buffers = false,
                                      .background_sum_bytes = sums_in_background ? 1 : 2 * kBlock});
  std::vector<BlockId> ids;
  for (int i = 0; i < 7; ++i) {
    ids.push_back(store.add(kBlock - 5, i == 2 ? Tier::kHost : Tier::kDisk, "block " + std::to_string(i)));
  }
  one_pass(store, ids, 0);
  one_pass(store, ids, 1);
  store.set_home(ids[2], Tier::kDisk);
  store.set_home(ids[4], Tier::kHost);
  one_pass(store, ids, 2);
  store.flush();
  store.remove(ids.back());
  ids.pop_back();
  one_pass(store, ids, 3);
  store.flush();
}

enum class Outcome { kNoFault, kThrown, kHidden };

// Lets the n-th transfer of live() fail, and looks at what came of it.
Outcome fail_nth(Ending ending, std::uint64_t n, bool for_good, bool sums_in_background) {
  MemoryTiers memory(ending);
  bool met = false;
  memory.engine->set_fate(
      [&](std::uint64_t number, const IoRequest&) {
        met = met || number == n;
        return number == n ? Fate::kFailed : Fate::kDone;
      },
      for_good);
  bool thrown = false;
  try {
    live(memory.tiers, sums_in_background);
  } catch (const IoError& error) {
    thrown = true;
    EXPECT_EQ(error.failure().error_number, EIO);
    EXPECT_THAT(error.what(), testing::ContainsRegex("state, block 'block [0-6]'"));
  }
  EXPECT_EQ(memory.tiers->host().used_bytes(), 0U);
  EXPECT_EQ(memory.tiers->disk().used_bytes(), 0U);
  EXPECT_THAT(memory.engine->in_flight(), testing::IsEmpty());
  return !met ? Outcome::kNoFault : thrown ? Outcome::kThrown : Outcome::kHidden;
}

TEST(BlockStoreFault, ReportsEveryTransferThatFailsOnceOrForGood) {
  for (const Ending ending : {Ending::kAtOnce, Ending::kOnDemand, Ending::kShuffled}) {
    for (const auto& [for_good, background] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
      std::uint64_t n = 1;
      for (Outcome outcome = Outcome::kThrown; outcome != Outcome::kNoFault; ++n) {
        outcome = fail_nth(ending, n, for_good, background);
        ASSERT_NE(outcome, Outcome::kHidden) << "transfer " << n << ", for good: " << for_good;
      }
      EXPECT_GT(n, 40U) << "the loop must meet reads and writes of every kind";
    }
  }
}

TEST(BlockStoreFault, ReportsWhatARealEngineFails) {
  for (const bool for_good : {false, true}) {
    bool met = true;
    std::uint64_t n = 1;
    for (; met; ++n) {
      const test::TempDir folder;
      auto owned = std::make_unique<test::FaultyEngine>(std::make_unique<ThreadEngine>(EngineOptions{}));
      const test::FaultyEngine& engine = *owned;
      owned->inject({.nth = n, .for_good = for_good, .only = {}});
      const auto tiers = std::make_shared<Tiers>(
          TiersOptions{.nvme_path = folder.path().string(), .log = [](const std::string&) {}}, std::move(owned));
      bool thrown = false;
      try {
        live(tiers, n % 2 == 0);
      } catch (const IoError&) {
        thrown = true;
      }
      met = !engine.log().empty();
      ASSERT_EQ(thrown, met) << "transfer " << n;
      ASSERT_EQ(tiers->host().used_bytes() + tiers->disk().used_bytes(), 0U);
    }
    EXPECT_GT(n, 40U);
  }
}

TEST(BlockStoreFault, HandsOutNoDamageWhateverTheEngineDoesToTheBytes) {
  using test::FaultKind;
  for (const FaultKind kind : {FaultKind::kCorrupt, FaultKind::kLose, FaultKind::kTear, FaultKind::kMisdirect}) {
    std::uint64_t caught = 0;
    bool met = true;
    for (std::uint64_t n = 1; met; ++n) {
      const test::TempDir folder;
      auto owned = std::make_unique<test::FaultyEngine>(std::make_unique<ThreadEngine>(EngineOptions{}), n);
      const test::FaultyEngine& engine = *owned;
      owned->inject({.kind = kind, .nth = n, .only = {}});
      const auto tiers = std::make_shared<Tiers>(
          TiersOptions{.nvme_path = folder.path().string(), .log = [](const std::string&) {}}, std::move(owned));
      try {
        live(tiers, n % 2 == 0);  // Looks at every byte that it gets.
      } catch (const Corruption&) {
        ++caught;
      }
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "transfer " << n << " of kind " << static_cast<int>(kind);
      met = !engine.log().empty();
    }
    EXPECT_GT(caught, 20U) << "kind " << static_cast<int>(kind);
  }
}

TEST(BlockStoreFault, KeepsTheContentsOfAFailedWriteUntilItsFailureIsKnown) {
  MemoryTiers memory(Ending::kOnDemand);
  test::StreamedStore streamed(memory.tiers, 3, kBlock, 2);
  streamed.fill(1);
  streamed.store.flush();
  memory.engine->set_fate(
      [](std::uint64_t, const IoRequest& request) {
        return request.operation == IoRequest::Operation::kWrite ? Fate::kFailed : Fate::kDone;
      },
      false);
  streamed.store.begin(streamed.ids, Access::kReadWrite);
  Lease lease = streamed.store.acquire(streamed.ids[0], Access::kReadWrite);
  const std::span<std::byte> slot = lease.bytes();
  std::memset(slot.data(), 77, slot.size());
  lease.release();
  memory.engine->end_all();  // The write fails; the read behind it, into the same memory, must not run.
  EXPECT_TRUE(all_equal(slot, 77));
  EXPECT_THROW(static_cast<void>(streamed.store.acquire(streamed.ids[1], Access::kReadWrite)), IoError);
  EXPECT_THROW(streamed.store.flush(), IoError) << "again, to whoever asks";
}

TEST(BlockStoreFault, ThrowsARefusedWriteBackToTheLeasesOwnerOrToTheNextCaller) {
  for (const bool by_destructor : {false, true}) {
    MemoryTiers memory(Ending::kAtOnce);
    test::StreamedStore streamed(memory.tiers, 4, kBlock, 3);
    streamed.fill(1);
    streamed.store.begin(streamed.ids, Access::kReadWrite);
    Lease lease = streamed.store.acquire(streamed.ids[0], Access::kReadWrite);
    memory.engine->set_fate([](std::uint64_t, const IoRequest&) { return Fate::kFailed; });
    Lease other = streamed.store.acquire(streamed.ids[1], Access::kReadWrite);
    other.release();  // Submitted, fails, and poisons the engine.
    if (by_destructor) {
      lease = Lease();
    } else {
      EXPECT_THROW(lease.release(), IoError);
    }
    EXPECT_THROW(static_cast<void>(streamed.store.acquire(streamed.ids[2], Access::kReadWrite)), IoError);
    EXPECT_THROW(streamed.store.begin(streamed.ids, Access::kRead), IoError);
    EXPECT_THROW(static_cast<void>(streamed.store.add(1, Tier::kHost, "x")), IoError);
  }
}

TEST(BlockStoreFault, SettlesTransfersInFlightWhenItsOwnerUnwinds) {
  MemoryTiers memory(Ending::kOnDemand);
  try {
    test::StreamedStore streamed(memory.tiers, 6, kBlock, 4);
    streamed.fill(1);
    streamed.store.begin(streamed.ids, Access::kReadWrite);
    const Lease lease = streamed.store.acquire(streamed.ids[0], Access::kReadWrite);
    throw std::runtime_error("the trainer failed");
  } catch (const std::runtime_error&) {
  }
  EXPECT_THAT(memory.engine->in_flight(), testing::IsEmpty());
  EXPECT_TRUE(memory.engine->registered().empty());
}

}  // namespace
}  // namespace spillway::offload::block_store_fault_test

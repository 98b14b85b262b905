// Reading ahead, working and writing back at once, shown with an engine that ends nothing before somebody waits for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <spillway/offload/error.hpp>

#include "store_fixture.hpp"

namespace spillway::offload::block_store_overlap_test {
namespace {

using test::MemoryEngine;
using test::MemoryTiers;
using test::StreamedStore;
using testing::IsEmpty;
using testing::UnorderedElementsAreArray;
using Ending = MemoryEngine::Ending;

constexpr std::uint64_t kBlock = 4 * kPageBytes;

// What is in flight, as "read 3" for the block at the third place of the swap space.
std::vector<std::string> in_flight(const MemoryEngine& engine) {
  std::vector<std::string> names;
  for (const auto& [number, request] : engine.in_flight()) {
    names.push_back((request.operation == IoRequest::Operation::kRead ? "read " : "write ") +
                    std::to_string(request.offset / kBlock));
  }
  return names;
}

// The blocks [first, last) of `count` there are.
void append(std::vector<std::string>& names, const char* what, int first, int last, int count) {
  for (int i = std::max(first, 0); i < std::min(last, count); ++i) {
    names.push_back(std::string(what) + std::to_string(i));
  }
}

TEST(BlockStoreOverlap, ReadsAheadAndWritesBackWhileABlockIsWorkedOn) {
  constexpr int kCount = 10;
  constexpr int kSlots = 4;
  MemoryTiers memory(Ending::kOnDemand);
  StreamedStore streamed(memory.tiers, kCount, kBlock, kSlots);
  streamed.fill(1);
  streamed.store.flush();
  streamed.store.begin(streamed.ids, Access::kReadWrite);
  EXPECT_THAT(in_flight(*memory.engine), UnorderedElementsAreArray({"read 0", "read 1", "read 2", "read 3"}));
  for (int i = 0; i < kCount; ++i) {
    const Lease lease = streamed.store.acquire(streamed.ids[static_cast<std::size_t>(i)], Access::kReadWrite);
    std::vector<std::string> expected;
    append(expected, "read ", i + 1, i + kSlots, kCount);
    append(expected, "write ", i - kSlots + 1, i, kCount);
    EXPECT_THAT(in_flight(*memory.engine), UnorderedElementsAreArray(expected)) << "while block " << i << " is out";
  }
  EXPECT_THAT(memory.engine->hazards(), IsEmpty());
}

TEST(BlockStoreOverlap, KeepsEverySlotButTheLeasedOnesBusyReadingAhead) {
  MemoryTiers memory(Ending::kOnDemand);
  StreamedStore streamed(memory.tiers, 8, kBlock, 5);
  streamed.fill(1);
  streamed.store.flush();
  streamed.store.begin(streamed.ids, Access::kRead);
  Lease first = streamed.store.acquire(streamed.ids[0], Access::kRead);
  Lease second = streamed.store.acquire(streamed.ids[1], Access::kRead);
  EXPECT_THAT(in_flight(*memory.engine), UnorderedElementsAreArray({"read 2", "read 3", "read 4"}));
  second.release();
  EXPECT_THAT(in_flight(*memory.engine), UnorderedElementsAreArray({"read 2", "read 3", "read 4", "read 5"}));
  first.release();
  EXPECT_EQ(in_flight(*memory.engine).size(), 5U);
}

TEST(BlockStoreOverlap, ReadsNothingForAPassThatOverwrites) {
  MemoryTiers memory(Ending::kOnDemand);
  StreamedStore streamed(memory.tiers, 6, kBlock, 3);
  streamed.fill(1);
  streamed.store.flush();
  streamed.fill(2);
  EXPECT_EQ(memory.tiers->stats().read_bytes, 0U);
  EXPECT_THAT(in_flight(*memory.engine), UnorderedElementsAreArray({"write 3", "write 4", "write 5"}));
}

TEST(BlockStoreOverlap, OrdersTheNextPassBehindTheWriteBacksOfTheLast) {
  MemoryTiers memory(Ending::kOnDemand);
  StreamedStore streamed(memory.tiers, 3, kBlock, 4);
  streamed.fill(1);
  streamed.store.begin(streamed.ids, Access::kRead);  // All three write-backs are in flight still.
  EXPECT_EQ(in_flight(*memory.engine).size(), 6U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(test::all_equal(streamed.store.acquire(streamed.ids[i], Access::kRead).bytes(),
                                static_cast<std::uint8_t>(1 + i)));
  }
  EXPECT_THAT(memory.engine->hazards(), IsEmpty());
}

TEST(BlockStoreOverlap, UsesTheLanesThatItWasGivenAndThatOfWriteBacks) {
  MemoryTiers memory(Ending::kOnDemand);
  BlockStore store(
      memory.tiers,
      {.name = "bank", .lane = Lane::kBank, .slot_bytes = kBlock, .disk_bytes = kBlock, .reuse_buffers = false});
  const BlockId id = store.add(kBlock, Tier::kDisk, "segment");
  store.acquire(id, Access::kOverwrite).release();
  store.begin(std::span(&id, 1), Access::kRead);
  const auto entries = memory.engine->in_flight();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].request.lane, Lane::kWriteBack);
  EXPECT_EQ(entries[1].request.lane, Lane::kBank);
}

TEST(BlockStoreOverlap, SettlesWhatIsInFlightBeforeItsMemoryGoes) {
  for (const Access access : {Access::kRead, Access::kReadWrite, Access::kOverwrite}) {
    MemoryTiers memory(Ending::kOnDemand);
    {
      StreamedStore streamed(memory.tiers, 8, kBlock, 3);
      streamed.fill(1);
      streamed.store.begin(streamed.ids, access);
      streamed.store.acquire(streamed.ids[0], access).release();
      EXPECT_FALSE(memory.engine->in_flight().empty());
      EXPECT_EQ(memory.engine->registered().size(), 1U);
    }  // The engine checks, when the memory is given back, that nothing is in flight there.
    EXPECT_THAT(memory.engine->in_flight(), IsEmpty());
    EXPECT_TRUE(memory.engine->registered().empty());
    EXPECT_EQ(memory.tiers->host().used_bytes(), 0U);
    EXPECT_EQ(memory.tiers->disk().used_bytes(), 0U);
  }
}

TEST(BlockStoreOverlap, TimesOutWithTheTransferStillRunningAndGoesOnWhenItHasEnded) {
  MemoryTiers memory(Ending::kAtOnce, {.deadline = std::chrono::milliseconds(1)});
  StreamedStore streamed(memory.tiers, 3, kBlock);
  streamed.fill(1);
  memory.engine->set_ending(Ending::kByHand);
  streamed.store.begin(streamed.ids, Access::kRead);
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_THROW(static_cast<void>(streamed.store.acquire(streamed.ids[0], Access::kRead)), TimedOut);
    EXPECT_EQ(memory.engine->in_flight().size(), 3U) << "the buffer is still the engine's";
  }
  EXPECT_GE(memory.tiers->stats().stall_ns, 2'000'000U);
  memory.engine->end_all();
  EXPECT_TRUE(test::all_equal(streamed.store.acquire(streamed.ids[0], Access::kRead).bytes(), 1));
}

}  // namespace
}  // namespace spillway::offload::block_store_overlap_test

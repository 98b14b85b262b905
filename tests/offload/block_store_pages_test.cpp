// Parts of blocks, read past the ring.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/error.hpp>

#include "store_fixture.hpp"

namespace spillway::offload::block_store_pages_test {
namespace {

using test::MemoryEngine;
using test::MemoryTiers;
using test::StreamedStore;
using Ending = MemoryEngine::Ending;
using Fate = MemoryEngine::Fate;

constexpr std::uint64_t kBlock = 3 * kPageBytes;

bool is_read(const IoRequest& request) { return request.operation == IoRequest::Operation::kRead; }

std::byte at(const AlignedBlock& memory, std::uint64_t page) { return memory.bytes()[page * kPageBytes]; }

TEST(BlockStorePages, ReadsWhatIsOnItsWayToTheDiskBehindItsWrite) {
  MemoryTiers memory(Ending::kOnDemand);
  StreamedStore streamed(memory.tiers, 3, kBlock, 2, true, kNoBackgroundSums);
  streamed.fill(11);  // Blocks of 11, 12, 13; the write-backs run still.
  const AlignedBlock buffer(4 * kPageBytes);
  const PageRun runs[] = {{streamed.ids[2], kPageBytes, buffer.bytes().first(2 * kPageBytes)},
                          {streamed.ids[0], 2 * kPageBytes, buffer.bytes().subspan(2 * kPageBytes, kPageBytes)}};
  const std::uint64_t before = memory.tiers->stats().read_bytes;
  streamed.store.read_pages(runs);
  EXPECT_EQ(at(buffer, 0), std::byte{13});
  EXPECT_EQ(at(buffer, 1), std::byte{13});
  EXPECT_EQ(at(buffer, 2), std::byte{11});
  EXPECT_EQ(memory.tiers->stats().read_bytes - before, 3 * kPageBytes);
  EXPECT_THAT(memory.engine->hazards(), testing::IsEmpty());
}

TEST(BlockStorePages, LeavesARunningPassAsItIs) {
  MemoryTiers memory(Ending::kAtOnce);
  StreamedStore streamed(memory.tiers, 3, kBlock, 2, true, kNoBackgroundSums);
  streamed.fill(11);
  streamed.store.begin(streamed.ids, Access::kRead);
  const AlignedBlock buffer(kPageBytes);
  for (std::size_t i = 0; i < 3; ++i) {
    const PageRun run{streamed.ids[2 - i], 0, buffer.bytes()};
    streamed.store.read_pages({&run, 1});
    EXPECT_EQ(at(buffer, 0), std::byte(13 - i));
    EXPECT_EQ(streamed.store.acquire(streamed.ids[i], Access::kRead).bytes()[0], std::byte(11 + i));
  }
}

TEST(BlockStorePages, GivesZerosOfABlockThatWasNeverWritten) {
  MemoryTiers memory(Ending::kAtOnce);
  StreamedStore streamed(memory.tiers, 3, kBlock, 2, true, kNoBackgroundSums);
  const AlignedBlock buffer(kPageBytes);
  std::memset(buffer.bytes().data(), 7, kPageBytes);
  const PageRun run{streamed.ids[1], kPageBytes, buffer.bytes()};
  streamed.store.read_pages({&run, 1});
  EXPECT_EQ(at(buffer, 0), std::byte{0});
}

TEST(BlockStorePages, ReportsAReadThatFailsWhenNoneIsInFlightAnyMore) {
  MemoryTiers memory(Ending::kOnDemand);
  StreamedStore streamed(memory.tiers, 3, kBlock, 2, true, kNoBackgroundSums);
  streamed.fill(11);
  streamed.store.flush();
  const std::uint64_t written = memory.engine->submitted();
  memory.engine->set_fate([&](std::uint64_t number, const IoRequest& request) {
    return is_read(request) && number == written + 1 ? Fate::kFailed : Fate::kDone;
  });
  const AlignedBlock buffer(2 * kPageBytes);
  const PageRun runs[] = {{streamed.ids[0], 0, buffer.bytes().first(kPageBytes)},
                          {streamed.ids[1], 0, buffer.bytes().subspan(kPageBytes, kPageBytes)}};
  EXPECT_THROW(streamed.store.read_pages(runs), IoError);
  EXPECT_THAT(memory.engine->in_flight(), testing::IsEmpty());
}

}  // namespace
}  // namespace spillway::offload::block_store_pages_test

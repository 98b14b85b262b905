// What went wrong in other libraries of this kind, asked of this one: last partial blocks that are never written, a
// wait with nothing to wait for that aborts, buffers that leak from a pipeline, buffers that run out in the second
// step. Rows are those of docs/known_bugs.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <unistd.h>

#include <spillway/offload/error.hpp>

#include "store_engines.hpp"
#include "support/property.hpp"

namespace spillway::offload::block_store_peers_test {
namespace {

using test::OverEveryEngine;
using test::Random;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class BlockStorePeers : public OverEveryEngine {};
INSTANTIATE_TEST_SUITE_P(Engines, BlockStorePeers, test::kEveryEngine,
                         [](const auto& test) { return test::name_of(test.param); });

// Row 2.
TEST_P(BlockStorePeers, BringsBackBlocksOfEveryLengthToTheLastByte) {
  test::for_random_seeds(3, [this](Random& random) {
    std::vector<std::uint64_t> lengths{1, 511, 512, 513, 4095, 4096, 4097, 3 * kMiB - 1, 3 * kMiB};
    for (int i = 0; i < 20; ++i) {
      lengths.push_back(random.between(1, 3 * kMiB));
    }
    const auto room = std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0},
                                      [](std::uint64_t sum, std::uint64_t bytes) { return sum + page_ceil(bytes); });
    BlockStore store(make_tiers({}, random.between(1, 1000)),
                     {.name = "state", .ring_slots = 3, .slot_bytes = 3 * kMiB, .disk_bytes = room});
    std::vector<BlockId> ids;
    for (const std::uint64_t bytes : lengths) {
      ids.push_back(store.add(bytes, Tier::kDisk, std::to_string(bytes) + " bytes"));
    }
    for (const Access access : {Access::kOverwrite, Access::kRead}) {
      store.begin(ids, access);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const Lease lease = store.acquire(ids[i], access);
        ASSERT_EQ(lease.bytes().size(), lengths[i]);
        const auto value = static_cast<std::uint8_t>(1 + i);
        if (access == Access::kOverwrite) {
          std::memset(lease.bytes().data(), value, lease.bytes().size());
        } else {
          ASSERT_TRUE(test::all_equal(lease.bytes(), value)) << lengths[i] << " bytes";
        }
      }
    }
  });
}

// Row 6.
TEST_P(BlockStorePeers, WaitsForNothingWhereThereIsNothingToWaitFor) {
  BlockStore store(
      make_tiers({}, 1),
      {.name = "state", .ring_slots = 2, .slot_bytes = kPageBytes, .disk_bytes = 2 * kPageBytes, .shadow_slots = true});
  store.flush();
  store.commit();
  store.roll_back();
  store.begin({}, Access::kReadWrite);
  const BlockId id = store.add(1, Tier::kDisk, "a");
  for (int i = 0; i < 2; ++i) {
    store.flush();
    store.commit();
    store.acquire(id, Access::kReadWrite).release();
  }
}

// Pages of this process that are in memory.
std::uint64_t resident_pages() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  statm >> size >> resident;
  return resident;
}

// Row 12: the process is as large in the two-hundredth step as in the third.
TEST_P(BlockStorePeers, KeepsItsBuffersThroughTwoHundredPipelinedSteps) {
  constexpr std::uint64_t kBlock = 64 * 1024;
  const auto tiers = make_tiers({}, 1);
  test::StreamedStore streamed(tiers, 12, kBlock, 2);
  std::uint64_t early = 0;
  for (int step = 0; step < 200; ++step) {
    streamed.store.begin(streamed.ids, Access::kReadWrite);
    for (const BlockId id : streamed.ids) {
      const Lease lease = streamed.store.acquire(id, Access::kReadWrite);
      ASSERT_TRUE(test::all_equal(lease.bytes(), static_cast<std::uint8_t>(step)));
      std::memset(lease.bytes().data(), step + 1, lease.bytes().size());
    }
    if (step == 3) {
      streamed.store.flush();
      early = resident_pages();
    }
  }
  streamed.store.flush();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // Which keep what is freed for a while.
  EXPECT_LE(resident_pages(), early + early / 100);
#endif
  EXPECT_EQ(tiers->host().peak_bytes(), 2 * kBlock);
}

// Row 13: any number of buffers lasts for any number of steps, with as many leases out as are allowed.
TEST_P(BlockStorePeers, GoesThroughPipelinedStepsWithAnyNumberOfBuffers) {
  constexpr std::uint64_t kBlock = 16 * 1024;
  for (unsigned buffers = 2; buffers <= 12; ++buffers) {
    test::StreamedStore streamed(make_tiers({}, buffers), 11, kBlock, buffers);
    for (int step = 0; step < 4; ++step) {
      streamed.store.begin(streamed.ids, Access::kReadWrite);
      std::deque<Lease> out;
      for (const BlockId id : streamed.ids) {
        out.push_back(streamed.store.acquire(id, Access::kReadWrite));
        ASSERT_TRUE(test::all_equal(out.back().bytes(), static_cast<std::uint8_t>(step))) << buffers << " buffers";
        std::memset(out.back().bytes().data(), step + 1, kBlock);
        if (out.size() + 1 == buffers) {
          out.pop_front();
        }
      }
    }
  }
}

// Row 13: too few are refused at once, with the number that it takes.
TEST(BlockStorePeersRing, SaysHowManyBuffersItNeedsWhereThereAreTooFew) {
  const auto tiers = test::MemoryTiers(test::MemoryEngine::Ending::kAtOnce).tiers;
  for (const unsigned buffers : {0U, 1U}) {
    try {
      const BlockStore store(
          tiers, {.name = "state", .ring_slots = buffers, .slot_bytes = kPageBytes, .disk_bytes = kPageBytes});
      FAIL() << "nothing overlaps in a ring of " << buffers;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("a ring of " + std::to_string(buffers)),
                                               testing::HasSubstr("give it 2 or more")));
    }
    EXPECT_EQ(tiers->host().used_bytes() + tiers->disk().used_bytes(), 0U);
  }
}

}  // namespace
}  // namespace spillway::offload::block_store_peers_test

// Many threads at one store: they share its blocks and its few buffers, and none waits for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <spillway/offload/error.hpp>

#include "store_engines.hpp"
#include "support/property.hpp"

namespace spillway::offload::block_store_threads_test {
namespace {

using test::all_equal;
using test::MemoryEngine;
using test::MemoryTiers;
using test::OverEveryEngine;
using test::Random;
using test::StreamedStore;
using Ending = MemoryEngine::Ending;

constexpr std::uint64_t kBlock = kPageBytes;

class BlockStoreThreads : public OverEveryEngine {};
INSTANTIATE_TEST_SUITE_P(Engines, BlockStoreThreads, test::kEveryEngine,
                         [](const auto& test) { return test::name_of(test.param); });

std::span<std::uint32_t> words_of(const Lease& lease) {
  return {reinterpret_cast<std::uint32_t*>(lease.bytes().data()), lease.bytes().size() / sizeof(std::uint32_t)};
}

bool uniform(std::span<const std::uint32_t> words) {
  return words.empty() || std::memcmp(words.data(), words.data() + 1, words.size_bytes() - sizeof(words[0])) == 0;
}

/// What a thread does: reads blocks and finds them whole, adds one to every word of others.
struct Worker {
  BlockStore& store;
  const std::vector<BlockId>& ids;
  std::vector<std::atomic<std::uint32_t>>& added;
  std::atomic<int>& torn;

  void run(std::uint64_t seed, int rounds) const {
    Random random(seed);
    for (int round = 0; round < rounds; ++round) {
      const std::size_t index = random.below(ids.size());
      const bool writes = random.chance(1, 2);
      Lease lease = store.acquire(ids[index], writes ? Access::kReadWrite : Access::kRead);
      const auto words = words_of(lease);
      torn += uniform(words) ? 0 : 1;
      if (writes) {
        for (std::uint32_t& word : words) {
          ++word;
        }
        ++added[index];
      }
      lease.release();
    }
  }
};

// Blocks on disk, and one in memory, for 64 threads and 2 buffers.
void crowd(const std::shared_ptr<Tiers>& tiers, std::uint64_t background_sum_bytes, int rounds) {
  constexpr int kThreads = 64;
  constexpr std::size_t kBlocks = 6;
  BlockStore store(tiers, {.name = "shared",
                           .ring_slots = 2,
                           .slot_bytes = kBlock,
                           .resident_bytes = kBlock,
                           .disk_bytes = (kBlocks - 1) * kBlock,
                           .background_sum_bytes = background_sum_bytes});
  std::vector<BlockId> ids;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    ids.push_back(store.add(kBlock, i == 0 ? Tier::kHost : Tier::kDisk, "block " + std::to_string(i)));
  }
  std::vector<std::atomic<std::uint32_t>> added(kBlocks);
  std::atomic<int> torn = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] { Worker{store, ids, added, torn}.run(static_cast<std::uint64_t>(t) + 1, rounds); });
    }
  }
  EXPECT_EQ(torn, 0);
  EXPECT_GT(std::accumulate(added.begin(), added.end(), 0), kThreads * rounds / 3);
  for (std::size_t i = 0; i < kBlocks; ++i) {
    const Lease lease = store.acquire(ids[i], Access::kRead);
    EXPECT_TRUE(uniform(words_of(lease)));
    EXPECT_EQ(words_of(lease).front(), added[i]) << "an update of block " << i << " was lost";
  }
  EXPECT_EQ(store.waiting(), 0U);
}

TEST_P(BlockStoreThreads, ServesSixtyFourThreadsFromTwoBuffersForAThousandRounds) {
  crowd(make_tiers({}, 11), 2 * kBlock, 1000);
}

TEST_P(BlockStoreThreads, ServesThemBesideTheThreadThatMakesChecksums) { crowd(make_tiers({}, 12), 1, 200); }

void wait_until(const std::function<bool()>& true_now) {
  while (!true_now()) {
    std::this_thread::yield();
  }
}

TEST(BlockStoreThreadsOrder, LetsManyReadABlockAtOnce) {
  MemoryTiers memory(Ending::kAtOnce);
  StreamedStore streamed(memory.tiers, 2, kBlock, 2);
  streamed.fill(1);
  const auto before = memory.tiers->stats().read_bytes.load();
  std::vector<Lease> leases;
  for (int i = 0; i < 100; ++i) {
    leases.push_back(streamed.store.acquire(streamed.ids[1], Access::kRead));
    EXPECT_EQ(leases.back().bytes().data(), leases.front().bytes().data());
  }
  EXPECT_TRUE(all_equal(streamed.store.acquire(streamed.ids[0], Access::kRead).bytes(), 1)) << "one buffer is free";
  leases.clear();
  EXPECT_EQ(memory.tiers->stats().read_bytes - before, 2 * kBlock);
}

TEST(BlockStoreThreadsOrder, GivesABlockToAWriterBeforeReadersThatComeLater) {
  MemoryTiers memory(Ending::kAtOnce);
  StreamedStore streamed(memory.tiers, 1, kBlock, 3);
  BlockStore& store = streamed.store;
  streamed.fill(1);
  Lease first = store.acquire(streamed.ids[0], Access::kRead);
  std::vector<std::string> served;
  std::jthread writer([&] {
    const Lease lease = store.acquire(streamed.ids[0], Access::kReadWrite);
    served.emplace_back("writer");
    std::memset(lease.bytes().data(), 9, lease.bytes().size());
  });
  wait_until([&] { return store.waiting() == 1; });
  std::jthread reader([&] {
    const Lease lease = store.acquire(streamed.ids[0], Access::kRead);
    served.emplace_back(all_equal(lease.bytes(), 9) ? "reader" : "reader of old contents");
  });
  wait_until([&] { return store.waiting() == 2; });
  first.release();
  writer.join();
  reader.join();
  EXPECT_THAT(served, testing::ElementsAre("writer", "reader"));
}

TEST(BlockStoreThreadsOrder, GivesABufferToWhoeverHasWaitedLongest) {
  MemoryTiers memory(Ending::kAtOnce);
  StreamedStore streamed(memory.tiers, 6, kBlock, 2);
  BlockStore& store = streamed.store;
  streamed.fill(1);
  std::vector<Lease> all;
  all.push_back(store.acquire(streamed.ids[0], Access::kRead));
  all.push_back(store.acquire(streamed.ids[1], Access::kRead));
  std::vector<std::size_t> served;
  std::vector<std::jthread> threads;
  for (std::size_t i = 2; i < 6; ++i) {
    threads.emplace_back([&, i] {
      const Lease lease = store.acquire(streamed.ids[i], Access::kRead);
      served.push_back(i);  // One buffer goes from hand to hand: no two are here at once.
    });
    wait_until([&] { return store.waiting() == i - 1; });
  }
  all.pop_back();
  threads.clear();
  EXPECT_THAT(served, testing::ElementsAre(2, 3, 4, 5));
}

TEST(BlockStoreThreadsOrder, ServesABlockOutOfOrderBesideARunningPass) {
  MemoryTiers memory(Ending::kOnDemand);
  StreamedStore streamed(memory.tiers, 6, kBlock, 2);
  BlockStore& store = streamed.store;
  streamed.fill(1);
  store.begin(std::span(streamed.ids).first(5), Access::kReadWrite);
  const auto before = memory.tiers->stats().read_bytes.load();
  for (std::size_t i = 0; i < 5; ++i) {
    const Lease lease = store.acquire(streamed.ids[i], Access::kReadWrite);
    EXPECT_TRUE(all_equal(lease.bytes(), static_cast<std::uint8_t>(1 + i)));
    // The other buffer has the next block of the pass already; it is read again afterwards.
    EXPECT_TRUE(all_equal(store.acquire(streamed.ids[5], Access::kRead).bytes(), 6));
  }
  EXPECT_EQ(memory.tiers->stats().read_bytes - before, (3 + 5 + 4) * kBlock) << "3 of the pass were announced before";
  EXPECT_THAT(memory.engine->hazards(), testing::IsEmpty());
}

TEST(BlockStoreThreadsOrder, TimesOutWhereABlockOrABufferDoesNotComeAndSaysWhy) {
  MemoryTiers memory(Ending::kAtOnce, {.deadline = std::chrono::milliseconds(1)});
  StreamedStore streamed(memory.tiers, 3, kBlock, 2);
  BlockStore& store = streamed.store;
  Lease first = store.acquire(streamed.ids[0], Access::kOverwrite);
  const auto expect_timeout = [&](std::size_t index, const std::string& why) {
    try {
      static_cast<void>(store.acquire(streamed.ids[index], Access::kRead));
      FAIL() << "nothing is free";
    } catch (const TimedOut& error) {
      EXPECT_THAT(error.what(),
                  testing::AllOf(testing::HasSubstr("'block " + std::to_string(index) + "'"), testing::HasSubstr(why)));
    }
    EXPECT_EQ(store.waiting(), 0U);
  };
  expect_timeout(0, "somebody who writes it");
  const Lease second = store.acquire(streamed.ids[1], Access::kRead);
  expect_timeout(2, "all 2 buffers are leased");
  first.release();
  EXPECT_TRUE(store.acquire(streamed.ids[2], Access::kRead).fresh());
}

TEST(BlockStoreThreadsOrder, WakesThoseWhoWaitWhenItIsClosed) {
  MemoryTiers memory(Ending::kAtOnce);
  StreamedStore streamed(memory.tiers, 5, kBlock, 2);
  BlockStore& store = streamed.store;
  Lease written = store.acquire(streamed.ids[0], Access::kOverwrite);
  const Lease read = store.acquire(streamed.ids[1], Access::kRead);
  std::atomic<int> cancelled = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      try {
        static_cast<void>(store.acquire(streamed.ids[i < 2 ? 0 : 2], Access::kRead));
      } catch (const Cancelled&) {
        ++cancelled;
      }
    });
  }
  wait_until([&] { return store.waiting() == 4; });
  store.close();
  threads.clear();
  EXPECT_EQ(cancelled, 4);
  EXPECT_THROW(static_cast<void>(store.acquire(streamed.ids[3], Access::kRead)), Cancelled);
  std::memset(written.bytes().data(), 3, written.bytes().size());
  written.release();  // What was leased is good still.
  store.flush();
  EXPECT_TRUE(all_equal(memory.engine->disk(0, kBlock), 3));
}

TEST(BlockStoreThreadsOrder, WakesThoseWhoWaitForABufferWhenAWriteBackIsRefused) {
  MemoryTiers memory(Ending::kAtOnce);
  StreamedStore streamed(memory.tiers, 5, kBlock, 2);
  BlockStore& store = streamed.store;
  Lease first = store.acquire(streamed.ids[0], Access::kOverwrite);
  Lease second = store.acquire(streamed.ids[1], Access::kOverwrite);
  std::atomic<int> failed = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      try {
        static_cast<void>(store.acquire(streamed.ids[3], Access::kReadWrite));
      } catch (const IoError&) {
        ++failed;
      }
    });
  }
  wait_until([&] { return store.waiting() == 3; });
  memory.engine->set_fate([](std::uint64_t, const IoRequest&) { return MemoryEngine::Fate::kFailed; });
  first.release();  // Is accepted, fails, and poisons the engine.
  EXPECT_THROW(second.release(), IoError);
  threads.clear();
  EXPECT_GE(failed, 1);
  EXPECT_EQ(store.waiting(), 0U);
}

}  // namespace
}  // namespace spillway::offload::block_store_threads_test

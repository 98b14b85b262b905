// Damage on the way to the disk, on it, and back: caught by the checksum, and by nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <spillway/offload/error.hpp>

#include "store_fixture.hpp"

namespace spillway::offload::block_store_damage_test {
namespace {

using test::all_equal;
using test::MemoryEngine;
using test::MemoryTiers;
using test::StreamedStore;
using Ending = MemoryEngine::Ending;
using Fate = MemoryEngine::Fate;

constexpr std::uint64_t kBlock = kPageBytes;

bool is_write(const IoRequest& request) { return request.operation == IoRequest::Operation::kWrite; }

// Three blocks, written twice: 11, 12, 13, then 21, 22, 23. `before_second` may spoil the second time.
struct Written {
  explicit Written(bool verify, std::uint64_t background_sum_bytes,
                   const std::function<void(MemoryEngine&)>& before_second = {})
      : streamed(memory.tiers, 3, kBlock, 2, verify, background_sum_bytes) {
    streamed.fill(11);
    streamed.store.flush();
    if (before_second) {
      before_second(*memory.engine);
    }
    streamed.fill(21);
    streamed.store.flush();
    memory.engine->set_fate({});
  }
  [[nodiscard]] std::uint8_t first_byte(std::size_t i) {
    return std::to_integer<std::uint8_t>(streamed.store.acquire(streamed.ids[i], Access::kRead).bytes().front());
  }
  MemoryTiers memory{Ending::kAtOnce};
  StreamedStore streamed;
};

/// With checksums made in the background, and by their callers.
class BlockStoreDamage : public testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Sums, BlockStoreDamage, testing::Values(1, 2 * kBlock),
                         [](const auto& test) { return test.param == 1 ? "InTheBackground" : "ByTheCaller"; });

TEST_P(BlockStoreDamage, RefusesAFlippedBitAndNamesWhatIsDamaged) {
  Written written(true, GetParam());
  written.memory.engine->disk(kBlock, 1)[0] ^= std::byte{1};
  EXPECT_EQ(written.first_byte(0), 21);
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      static_cast<void>(written.first_byte(1));
      FAIL() << "damaged contents were handed out";
    } catch (const Corruption& error) {
      EXPECT_THAT(error.what(),
                  testing::AllOf(testing::HasSubstr("state: block 'block 1'"), testing::HasSubstr("generation 2"),
                                 testing::HasSubstr("offset 4096"), testing::ContainsRegex("wanted [0-9a-f]{16}"),
                                 testing::ContainsRegex("got [0-9a-f]{16}"), testing::HasSubstr("checkpoint")));
    }
  }
}

TEST_P(BlockStoreDamage, RefusesAFlippedBitInABlockThatWasReadAhead) {
  for (const bool verify : {true, false}) {
    Written written(verify, GetParam());
    written.memory.engine->disk(kBlock, 1)[0] ^= std::byte{1};
    BlockStore& store = written.streamed.store;
    store.begin(written.streamed.ids, Access::kReadWrite);
    store.acquire(written.streamed.ids[0], Access::kReadWrite).release();
    for (int attempt = 0; attempt < 2 && verify; ++attempt) {
      EXPECT_THROW(static_cast<void>(store.acquire(written.streamed.ids[1], Access::kReadWrite)), Corruption);
    }
    if (!verify) {
      EXPECT_TRUE(store.acquire(written.streamed.ids[1], Access::kReadWrite)) << "the control";
    }
  }
}

TEST_P(BlockStoreDamage, LetsAFlippedBitThroughWhereTheCheckIsOff) {
  Written written(false, GetParam());
  written.memory.engine->disk(kBlock, 1)[0] ^= std::byte{1};
  EXPECT_EQ(written.first_byte(1), 22 ^ 1) << "the test's damage must be real, or the test above shows nothing";
}

TEST_P(BlockStoreDamage, RefusesEveryFlippedBitOfABlock) {
  MemoryTiers memory(Ending::kAtOnce);
  StreamedStore streamed(memory.tiers, 1, 61, 2, true, GetParam());
  streamed.fill(1);
  for (std::size_t bit = 0; bit < 61 * 8; ++bit) {
    std::byte& victim = memory.engine->disk(0, 61)[bit / 8];
    victim ^= std::byte(1U << (bit % 8));
    EXPECT_THROW(static_cast<void>(streamed.store.acquire(streamed.ids[0], Access::kRead)), Corruption) << bit;
    streamed.store.begin({}, Access::kRead);
    victim ^= std::byte(1U << (bit % 8));
    EXPECT_TRUE(all_equal(streamed.store.acquire(streamed.ids[0], Access::kRead).bytes(), 1)) << bit;
  }
}

TEST_P(BlockStoreDamage, IgnoresDamageBehindTheContents) {
  MemoryTiers memory(Ending::kAtOnce);
  StreamedStore streamed(memory.tiers, 1, 61, 2, true, GetParam());
  streamed.fill(1);
  memory.engine->disk(61, 1)[0] = std::byte{1};
  EXPECT_TRUE(all_equal(streamed.store.acquire(streamed.ids[0], Access::kRead).bytes(), 1));
}

void lose_second(MemoryEngine& engine) {
  engine.set_fate([](std::uint64_t, const IoRequest& request) {
    return is_write(request) && request.offset == kBlock ? Fate::kLost : Fate::kDone;
  });
}

TEST_P(BlockStoreDamage, RefusesAStaleGenerationLeftByALostWrite) {
  Written written(true, GetParam(), lose_second);
  EXPECT_EQ(written.first_byte(0), 21);
  EXPECT_THROW(static_cast<void>(written.first_byte(1)), Corruption);
  Written control(false, GetParam(), lose_second);
  EXPECT_EQ(control.first_byte(1), 12) << "without the check the stale contents come back";
}

void misdirect_second(MemoryEngine& engine) {
  engine.set_fate([](std::uint64_t, const IoRequest& request) {
    return is_write(request) && request.offset == kBlock ? Fate::kMisdirected : Fate::kDone;
  });
}

// Block 1 lands on block 2's place after 2 was written: the order of the second fill is turned round for that.
TEST_P(BlockStoreDamage, RefusesBothBlocksThatAMisdirectedWriteDamages) {
  for (const bool verify : {true, false}) {
    MemoryTiers memory(Ending::kAtOnce);
    StreamedStore streamed(memory.tiers, 3, kBlock, 2, verify, GetParam());
    std::reverse(streamed.ids.begin(), streamed.ids.end());
    streamed.fill(11);
    misdirect_second(*memory.engine);
    streamed.fill(21);
    for (const std::size_t i : {0U, 1U}) {
      if (verify) {
        EXPECT_THROW(static_cast<void>(streamed.store.acquire(streamed.ids[i], Access::kRead)), Corruption) << i;
        streamed.store.begin({}, Access::kRead);
      } else {
        EXPECT_TRUE(all_equal(streamed.store.acquire(streamed.ids[i], Access::kRead).bytes(), i == 0 ? 22 : 12)) << i;
      }
    }
    EXPECT_TRUE(all_equal(streamed.store.acquire(streamed.ids[2], Access::kRead).bytes(), 23));
  }
}

TEST_P(BlockStoreDamage, RefusesBlocksThatChangedPlaces) {
  Written written(true, GetParam());
  const auto first = written.memory.engine->disk(0, kBlock);
  std::swap_ranges(first.begin(), first.end(), written.memory.engine->disk(kBlock, kBlock).begin());
  EXPECT_THROW(static_cast<void>(written.first_byte(0)), Corruption);
}

TEST_P(BlockStoreDamage, LeavesADamagedBlockOnDiskWhenItShouldMoveToTheHost) {
  MemoryTiers memory(Ending::kAtOnce);
  BlockStore store(memory.tiers, {.name = "bank",
                                  .ring_slots = 2,
                                  .slot_bytes = kBlock,
                                  .resident_bytes = kBlock,
                                  .disk_bytes = kBlock,
                                  .reuse_buffers = false,
                                  .background_sum_bytes = GetParam()});
  const BlockId id = store.add(kBlock, Tier::kDisk, "a");
  store.acquire(id, Access::kOverwrite).release();
  memory.engine->disk(0, 1)[0] ^= std::byte{0x80};
  EXPECT_THROW(store.set_home(id, Tier::kHost), Corruption);
  EXPECT_EQ(store.home(id), Tier::kDisk);
  memory.engine->disk(0, 1)[0] ^= std::byte{0x80};
  store.set_home(id, Tier::kHost);  // The memory of the first attempt came back.
  EXPECT_EQ(store.home(id), Tier::kHost);
}

}  // namespace
}  // namespace spillway::offload::block_store_damage_test

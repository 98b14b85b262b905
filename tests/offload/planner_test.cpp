#include <spillway/offload/planner.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include <spillway/offload/error.hpp>

#include "support/property.hpp"

namespace spillway::offload::planner_test {
namespace {

constexpr std::uint64_t kPage = kPageBytes;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

PlacementRequest request(const std::vector<std::uint64_t>& blocks, std::uint64_t host_bytes) {
  return {.name = "optimizer state", .block_bytes = blocks, .host_bytes = host_bytes, .disk_allowed = true};
}

std::string homes(const Placement& placement) {
  std::string text;
  for (const Tier home : placement.home) {
    text += home == Tier::kHost ? 'h' : 'd';
  }
  return text;
}

TEST(Planner, KeepsEverythingResidentWithoutARingWhereItFits) {
  const std::vector<std::uint64_t> blocks{1, kPage, kPage + 1};
  const Placement placement = place(request(blocks, 4 * kPage));
  EXPECT_EQ(homes(placement), "hhh");
  EXPECT_EQ(placement.resident_bytes, 4 * kPage) << "sizes are rounded up to pages";
  EXPECT_EQ(placement.ring_bytes + placement.disk_bytes + placement.read_bytes_per_pass, 0U);
}

TEST(Planner, StreamsEverythingWhereOnlyTheRingFits) {
  const std::vector<std::uint64_t> blocks(10, kMiB);
  const Placement placement = place(request(blocks, 4 * kMiB));
  EXPECT_EQ(homes(placement), "dddddddddd");
  EXPECT_EQ(placement.ring_bytes, 4 * kMiB);
  EXPECT_EQ(placement.read_bytes_per_pass, 10 * kMiB);
  EXPECT_EQ(placement.written_bytes_per_pass, 10 * kMiB);
}

TEST(Planner, SpreadsTheResidentBlocksEvenlyOverTheOrder) {
  const std::vector<std::uint64_t> blocks(12, kMiB);
  EXPECT_EQ(homes(place(request(blocks, (4 + 3) * kMiB))), "dddhdddhdddh");
  EXPECT_EQ(homes(place(request(blocks, (4 + 6) * kMiB))), "dhdhdhdhdhdh");
}

TEST(Planner, CountsTwoVersionsOfEachBlockWithShadowSlots) {
  const std::vector<std::uint64_t> blocks(12, kMiB);
  PlacementRequest shadowed = request(blocks, (4 + 6) * kMiB);
  shadowed.shadow_slots = true;
  const Placement placement = place(shadowed);
  EXPECT_EQ(homes(placement), "dddhdddhdddh") << "half of what would be resident without";
  EXPECT_EQ(placement.ring_bytes, 4 * kMiB);
  EXPECT_EQ(placement.resident_bytes, 2 * 3 * kMiB);
  EXPECT_EQ(placement.disk_bytes, 2 * 9 * kMiB);
  EXPECT_EQ(placement.read_bytes_per_pass, 9 * kMiB) << "one version of each is moved";
  EXPECT_EQ(placement.written_bytes_per_pass, 9 * kMiB);
  shadowed.host_bytes = 24 * kMiB;
  EXPECT_EQ(homes(place(shadowed)), "hhhhhhhhhhhh");
  EXPECT_EQ(place(shadowed).ring_bytes, 0U);
  shadowed.host_bytes = 24 * kMiB - 1;
  shadowed.disk_allowed = false;
  EXPECT_THROW(static_cast<void>(place(shadowed)), BudgetExceeded);
}

TEST(Planner, KeepsOneHugeBlockResidentRatherThanMultiplyingItByTheSlots) {
  std::vector<std::uint64_t> blocks(32, kMiB);
  blocks[5] = 100 * kMiB;
  const Placement placement = place(request(blocks, 110 * kMiB));
  EXPECT_EQ(placement.home[5], Tier::kHost);
  EXPECT_EQ(placement.ring_bytes, 4 * kMiB);
  EXPECT_EQ(placement.resident_bytes, 106 * kMiB);
}

TEST(Planner, WritesNothingBackForAClientThatOnlyReads) {
  const std::vector<std::uint64_t> blocks(8, kMiB);
  PlacementRequest reading = request(blocks, 5 * kMiB);
  reading.written_back = false;
  EXPECT_EQ(place(reading).written_bytes_per_pass, 0U);
  EXPECT_EQ(place(reading).read_bytes_per_pass, 7 * kMiB);
}

TEST(Planner, NamesNeedAndSettingWhereNotEvenTheRingFits) {
  const std::vector<std::uint64_t> blocks(8, 2 * kMiB);
  try {
    static_cast<void>(place(request(blocks, 7 * kMiB)));
    FAIL() << "a ring of 8 MiB does not fit into 7 MiB";
  } catch (const BudgetExceeded& error) {
    EXPECT_STREQ(error.what(),
                 "host memory for optimizer state is too small: [its 8 blocks: 16 MiB] [its ring of 4 slots of 2 MiB: "
                 "8 MiB] [there is: 7 MiB]; raise offload.host_bytes (--host-budget) or make the blocks smaller");
  }
}

TEST(Planner, RefusesToSpillWhereTheDiskIsNotAllowed) {
  const std::vector<std::uint64_t> blocks(8, kMiB);
  PlacementRequest host_only = request(blocks, 7 * kMiB);
  host_only.disk_allowed = false;
  try {
    static_cast<void>(place(host_only));
    FAIL() << "8 MiB do not fit into 7 MiB";
  } catch (const BudgetExceeded& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("or let it go to disk"));
  }
}

TEST(Planner, PlacesNothingForNoBlocks) { EXPECT_TRUE(place(request({}, 0)).home.empty()); }

TEST(Planner, NeverExceedsItsMemoryAndLeavesNoRoomUnused) {
  test::for_random_seeds(300, [](test::Random& random) {
    std::vector<std::uint64_t> blocks(random.between(1, 60));
    const std::uint64_t largest = random.between(1, 64 * kPage);
    std::uint64_t total = 0;
    for (auto& bytes : blocks) {
      bytes = random.between(1, largest);
      total += page_ceil(bytes);
    }
    PlacementRequest wanted = request(blocks, random.between(0, total + total / 4));
    wanted.ring_slots = static_cast<unsigned>(random.between(2, 6));
    Placement placement;
    try {
      placement = place(wanted);
    } catch (const BudgetExceeded&) {
      ASSERT_GT(total, wanted.host_bytes);
      for (const std::uint64_t slot : blocks) {  // No slot size would have done.
        std::uint64_t need = wanted.ring_slots * page_ceil(slot);
        for (const std::uint64_t bytes : blocks) {
          need += page_ceil(bytes) > page_ceil(slot) ? page_ceil(bytes) : 0;
        }
        ASSERT_GT(need, wanted.host_bytes);
      }
      return;
    }
    ASSERT_LE(placement.resident_bytes + placement.ring_bytes, wanted.host_bytes);
    std::uint64_t resident = 0;
    std::uint64_t slot = 0;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      (placement.home[i] == Tier::kHost ? resident : slot) =
          placement.home[i] == Tier::kHost ? resident + page_ceil(blocks[i]) : std::max(slot, page_ceil(blocks[i]));
    }
    ASSERT_EQ(placement.resident_bytes, resident);
    ASSERT_EQ(placement.disk_bytes, total - resident);
    ASSERT_EQ(placement.ring_bytes, slot * wanted.ring_slots);
    ASSERT_EQ(homes(place(wanted)), homes(placement)) << "not deterministic";
    if (placement.disk_bytes > 0) {  // With the blocks of about one size, less than one block's room is left unused.
      const std::uint64_t left = wanted.host_bytes - placement.resident_bytes - placement.ring_bytes;
      const std::uint64_t reserved = wanted.ring_slots * page_ceil(*std::max_element(blocks.begin(), blocks.end()));
      ASSERT_LE(left, slot + reserved - placement.ring_bytes);
    }
  });
}

TEST(Planner, KeepsWithinOneBlockOfTheEvenShareAllAlongTheOrder) {
  test::for_random_seeds(200, [](test::Random& random) {
    const std::uint64_t size = kPage * random.between(1, 8);
    const std::vector<std::uint64_t> blocks(random.between(5, 80), size);
    const std::uint64_t room = random.below(blocks.size() - 4);
    const Placement placement = place(request(blocks, (room + 4) * size));
    std::uint64_t resident = 0;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      resident += placement.home[i] == Tier::kHost ? 1 : 0;
      const double share = static_cast<double>(room) / static_cast<double>(blocks.size()) * static_cast<double>(i + 1);
      ASSERT_NEAR(static_cast<double>(resident), share, 1.0 + 1e-9);
    }
    ASSERT_EQ(resident, room);
  });
}

}  // namespace
}  // namespace spillway::offload::planner_test

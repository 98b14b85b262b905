#include <spillway/offload/extent_map.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include <spillway/offload/tier.hpp>

#include "support/property.hpp"

namespace spillway::offload::extent_map_test {
namespace {

constexpr std::uint64_t kPage = kPageBytes;

TEST(ExtentMap, TakesTheFirstExtentThatFits) {
  ExtentMap map(10 * kPage);
  const auto a = map.try_allocate(2 * kPage);
  const auto b = map.try_allocate(3 * kPage);
  const auto c = map.try_allocate(1);
  EXPECT_EQ(a, 0U);
  EXPECT_EQ(b, 2 * kPage);
  EXPECT_EQ(c, 5 * kPage);
  EXPECT_EQ(map.free_bytes(), 4 * kPage);
}

TEST(ExtentMap, ReusesAFreedExtentBeforeGrowing) {
  ExtentMap map(10 * kPage);
  static_cast<void>(map.try_allocate(2 * kPage));
  const auto hole = map.try_allocate(3 * kPage);
  static_cast<void>(map.try_allocate(kPage));
  map.free(*hole, 3 * kPage);
  EXPECT_EQ(map.try_allocate(4 * kPage), 6 * kPage) << "does not fit into the hole";
  EXPECT_EQ(map.try_allocate(3 * kPage), hole);
}

TEST(ExtentMap, JoinsAFreedExtentWithBothNeighbours) {
  ExtentMap map(6 * kPage);
  const auto a = map.try_allocate(2 * kPage);
  const auto b = map.try_allocate(2 * kPage);
  const auto c = map.try_allocate(2 * kPage);
  map.free(*a, 2 * kPage);
  map.free(*c, 2 * kPage);
  EXPECT_EQ(map.longest_free_bytes(), 2 * kPage);
  EXPECT_EQ(map.try_allocate(3 * kPage), std::nullopt);
  map.free(*b, 2 * kPage);
  EXPECT_EQ(map.longest_free_bytes(), 6 * kPage);
  EXPECT_EQ(map.try_allocate(6 * kPage), 0U);
}

TEST(ExtentMap, HasNothingForMoreThanThereIs) {
  ExtentMap map(2 * kPage);
  EXPECT_EQ(map.try_allocate(2 * kPage + 1), std::nullopt);
  EXPECT_EQ(map.try_allocate(std::numeric_limits<std::uint64_t>::max()), std::nullopt);
  EXPECT_EQ(ExtentMap().try_allocate(1), std::nullopt);
}

TEST(ExtentMap, JoinsWhatItGrowsByWithTheFreeEnd) {
  ExtentMap map(3 * kPage);
  static_cast<void>(map.try_allocate(kPage));
  EXPECT_EQ(map.free_bytes_at_end(), 2 * kPage);
  map.grow(kPage + 1);
  EXPECT_EQ(map.total_bytes(), 5 * kPage);
  EXPECT_EQ(map.free_bytes_at_end(), 4 * kPage);
  EXPECT_EQ(map.try_allocate(4 * kPage), kPage);
  EXPECT_EQ(map.free_bytes_at_end(), 0U);
}

TEST(ExtentMapDeathTest, EndsTheProcessOnADoubleOrOverlappingFree) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ExtentMap map(8 * kPage);
  static_cast<void>(map.try_allocate(8 * kPage));
  map.free(2 * kPage, 2 * kPage);
  EXPECT_DEATH(map.free(2 * kPage, 2 * kPage), "freed twice");
  EXPECT_DEATH(map.free(3 * kPage, kPage), "freed twice");
  EXPECT_DEATH(map.free(kPage, 2 * kPage), "freed twice");
  EXPECT_DEATH(map.free(8 * kPage, kPage), "outside");
  EXPECT_DEATH(map.free(1, kPage), "outside");
}

// The naive model: one flag per page.
TEST(ExtentMap, AgreesWithAMapOfPagesUnderRandomUse) {
  test::for_random_seeds(40, [](test::Random& random) {
    std::vector<bool> used(random.between(1, 60), false);
    ExtentMap map(used.size() * kPage);
    std::map<std::uint64_t, std::uint64_t> held;
    const auto first_fit = [&](std::uint64_t pages) -> std::optional<std::uint64_t> {
      for (std::size_t start = 0; start + pages <= used.size(); ++start) {
        if (std::none_of(used.begin() + static_cast<std::ptrdiff_t>(start),
                         used.begin() + static_cast<std::ptrdiff_t>(start + pages), [](bool u) { return u; })) {
          return start * kPage;
        }
      }
      return std::nullopt;
    };
    const auto mark = [&](std::uint64_t offset, std::uint64_t pages, bool value) {
      std::fill_n(used.begin() + static_cast<std::ptrdiff_t>(offset / kPage), pages, value);
    };
    for (int step = 0; step < 300; ++step) {
      if (random.chance(1, 40)) {
        const std::uint64_t pages = random.between(1, 5);
        map.grow(pages * kPage - random.below(kPage));
        used.resize(used.size() + pages, false);
      } else if (random.chance(1, 2) || held.empty()) {
        const std::uint64_t bytes = random.between(1, 9 * kPage);
        const std::uint64_t pages = page_ceil(bytes) / kPage;
        const auto expected = first_fit(pages);
        ASSERT_EQ(map.try_allocate(bytes), expected);
        if (expected) {
          mark(*expected, pages, true);
          held[*expected] = bytes;
        }
      } else {
        auto victim = held.begin();
        std::advance(victim, static_cast<std::ptrdiff_t>(random.below(held.size())));
        map.free(victim->first, victim->second);
        mark(victim->first, page_ceil(victim->second) / kPage, false);
        held.erase(victim);
      }
      const auto free_pages = static_cast<std::uint64_t>(std::count(used.begin(), used.end(), false));
      ASSERT_EQ(map.free_bytes(), free_pages * kPage);
      ASSERT_EQ(map.total_bytes(), used.size() * kPage);
    }
  });
}

}  // namespace
}  // namespace spillway::offload::extent_map_test

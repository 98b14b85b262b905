#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include <spillway/offload/tier.hpp>
#include <spillway/queue/page_runs.hpp>

namespace spillway::queue::page_runs_test {
namespace {

using offload::kPageBytes;

TEST(PageRuns, MergesNeighboursAndReadsSmallGapsAlong) {
  PageRuns runs(100);
  EXPECT_EQ(runs.add(3, 100, 50), 100U);                         // Page 0.
  EXPECT_EQ(runs.add(3, 100, 50), 100U);                         // Again.
  EXPECT_EQ(runs.add(3, kPageBytes - 10, 20), kPageBytes - 10);  // Pages 0 and 1.
  const std::uint64_t last = (1 + PageRuns::kGapPages + 1) * kPageBytes;
  EXPECT_EQ(runs.add(3, last, 8), last);
  ASSERT_EQ(runs.runs().size(), 1U);
  EXPECT_EQ(runs.runs()[0].pages, PageRuns::kGapPages + 3);
  EXPECT_EQ(runs.add(3, 50 * kPageBytes + 5, 8), (PageRuns::kGapPages + 3) * kPageBytes + 5);
  EXPECT_EQ(runs.add(4, 50 * kPageBytes, 8), (PageRuns::kGapPages + 4) * kPageBytes);
  ASSERT_EQ(runs.runs().size(), 3U);
  EXPECT_EQ(runs.runs()[1].first_page, 50U);
  EXPECT_EQ(runs.runs()[2].segment, 4U);
}

TEST(PageRuns, SaysWhenItsBufferIsFullAndBeginsAnew) {
  PageRuns runs(2);
  EXPECT_EQ(runs.add(0, 0, 10), 0U);
  EXPECT_EQ(runs.add(0, 2 * kPageBytes, 10), std::nullopt);  // With its gap it would be the third page.
  EXPECT_EQ(runs.add(1, 7 * kPageBytes, kPageBytes), kPageBytes);
  EXPECT_EQ(runs.add(2, 0, 1), std::nullopt);
  runs.clear();
  EXPECT_EQ(runs.add(2, 0, 1), 0U);
  EXPECT_EQ(runs.add(2, kPageBytes - 1, 2), kPageBytes - 1);
}

TEST(PageSums, MatchTheirOwnPageAlone) {
  std::vector<std::byte> contents(2 * kPageBytes + 100, std::byte{7});
  const PageSums sums(5, contents);
  contents.resize(3 * kPageBytes);
  const std::span<std::byte> all(contents);
  for (std::uint64_t page = 0; page < 3; ++page) {
    EXPECT_TRUE(sums.match(page, all.subspan(page * kPageBytes, kPageBytes)));
  }
  EXPECT_FALSE(sums.match(1, all.subspan(2 * kPageBytes, kPageBytes)));
  // The same bytes at another place, in another segment, or with one bit less.
  const PageSums elsewhere(6, all.first(2 * kPageBytes + 100));
  contents[kPageBytes] = std::byte{6};
  EXPECT_FALSE(sums.match(1, all.subspan(kPageBytes, kPageBytes)));
  EXPECT_TRUE(sums.match(0, all.first(kPageBytes)));
  PageSums twisted(5, std::vector<std::byte>(2 * kPageBytes, std::byte{7}));
  EXPECT_TRUE(twisted.match(0, all.first(kPageBytes)));
  EXPECT_TRUE(elsewhere.match(0, all.first(kPageBytes)));
}

}  // namespace
}  // namespace spillway::queue::page_runs_test

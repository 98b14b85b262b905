#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include <spillway/queue/segment_ring.hpp>
#include <support/property.hpp>

namespace spillway::queue::segment_ring_test {
namespace {

using offload::Tier;
using Action = SegmentRing::Action;

/// Adds `rows` rows as the bank does; returns the actions other than fills and trims, in order.
std::vector<Action> add(SegmentRing& ring, std::int64_t rows) {
  std::vector<Action> moves;
  for (auto step = ring.next(rows); step.action != Action::kDone; step = ring.next(rows)) {
    if (step.action == Action::kFill) {
      rows -= step.rows;
    } else if (step.action != Action::kTrim) {
      moves.push_back(step.action);
    }
    ring.apply(step);
  }
  return moves;
}

TEST(SegmentRing, KeepsTheNewestSealedSegmentsInHostMemory) {
  SegmentRing ring({.capacity = 100, .segment_rows = 10, .resident_segments = 3});
  add(ring, 45);
  ASSERT_EQ(ring.segments().size(), 5U);
  const Tier wanted[] = {Tier::kDisk, Tier::kDisk, Tier::kHost, Tier::kHost, Tier::kHost};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(ring.segments()[i].home, wanted[i]) << i;
}

TEST(SegmentRing, DemotesAsSoonAsASegmentIsFull) {
  SegmentRing ring({.capacity = 100, .segment_rows = 10, .resident_segments = 1});
  EXPECT_EQ(add(ring, 9), std::vector{Action::kOpen});
  EXPECT_EQ(add(ring, 1), std::vector{Action::kDemote});
}

TEST(SegmentRing, DropsASegmentOnlyWhenItsLastRowGoes) {
  SegmentRing ring({.capacity = 10, .segment_rows = 4, .resident_segments = 100});
  add(ring, 10);
  EXPECT_TRUE(add(ring, 2).empty());  // Rows 0 and 1 go, segment 0 stays.
  EXPECT_EQ(ring.trimmed(), 2);
  EXPECT_EQ(add(ring, 1), std::vector{Action::kOpen});
  EXPECT_EQ(add(ring, 1), std::vector{Action::kDrop});
  EXPECT_EQ(ring.trimmed(), 0);
  EXPECT_EQ(ring.size(), 10);
}

TEST(SegmentRing, WritesNoSegmentThatTheSameBatchPushesOut) {
  SegmentRing ring({.capacity = 12, .segment_rows = 4, .resident_segments = 2});
  add(ring, 11);
  const std::vector<Action> moves = add(ring, 12);
  EXPECT_EQ(std::count(moves.begin(), moves.end(), Action::kDemote), 2);  // Of the three new ones.
}

TEST(SegmentRing, SpillsNothingWhereAllHasRoom) {
  // Capacity 5 in segments of 2 may be spread over three full segments, the oldest with one valid row.
  SegmentRing ring({.capacity = 5, .segment_rows = 2, .resident_segments = 3});
  EXPECT_EQ(ring.segments_max(5, 2), 3);
  for (int i = 0; i < 20; ++i) {
    add(ring, 1);
    EXPECT_EQ(ring.count_on(Tier::kDisk), 0);
  }
}

TEST(SegmentRing, StaysWithinItsBoundsAndReachesThem) {
  test::for_random_seeds(200, [](test::Random& random) {
    const RingShape shape{static_cast<std::int64_t>(random.between(1, 40)),
                          static_cast<std::int64_t>(random.between(1, 12)),
                          static_cast<std::int64_t>(random.between(1, 12))};
    const auto segments_max = static_cast<std::size_t>(SegmentRing::segments_max(shape.capacity, shape.segment_rows));
    const std::int64_t disk_max = SegmentRing::disk_segments_max(shape);
    SegmentRing ring(shape);
    std::size_t segments_seen = 0;
    std::int64_t disk_seen = 0;
    std::int64_t rows_added = 0;
    for (int operation = 0; operation < 300; ++operation) {
      std::int64_t pending = static_cast<std::int64_t>(
          random.below(static_cast<std::uint64_t>(random.chance(1, 8) ? shape.capacity : 1) + 1));
      rows_added += pending;
      for (auto step = ring.next(pending); step.action != Action::kDone; step = ring.next(pending)) {
        ring.apply(step);
        if (step.action == Action::kFill) pending -= step.rows;
        segments_seen = std::max(segments_seen, ring.segments().size());
        disk_seen = std::max(disk_seen, ring.count_on(Tier::kDisk));
        ASSERT_LE(ring.segments().size(), segments_max);
        ASSERT_LE(ring.count_on(Tier::kHost), shape.resident_segments);
        ASSERT_LE(ring.count_on(Tier::kDisk), disk_max);
      }
      ASSERT_EQ(ring.size(), std::min(rows_added, shape.capacity));
      ASSERT_LE(ring.trimmed(), shape.segment_rows);
    }
    // The bounds are what memory and disk are set aside for: they must not be generous either.
    EXPECT_EQ(segments_seen, segments_max);
    EXPECT_EQ(disk_seen, disk_max);
  });
}

}  // namespace
}  // namespace spillway::queue::segment_ring_test

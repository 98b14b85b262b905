#include <spillway/app/training/traffic_forecast.hpp>

#include <vector>

#include <gtest/gtest.h>

namespace spillway::app::traffic_forecast_test {
namespace {

using optimizer::StepBytes;

/// 4 segments of 8 rows, each a page, of which one stays in memory beside the ring and the tile.
queue::BankOptions spilling_bank() {
  queue::BankOptions bank;
  bank.capacity = 24;
  bank.dim = 4;
  bank.dtype = at::kFloat;
  bank.segment_rows = 8;
  bank.disk_allowed = true;
  bank.ring_slots = 2;
  bank.host_bytes = 2 * 4096 + queue::page_sum_bytes(4 * 4096) + 3 * 4096;  // The tile, sums, ring and a segment.
  return bank;
}

constexpr StepBytes kFirst = {0, 1000};
constexpr StepBytes kSteady = {1000, 1000};

TEST(TrafficForecast, ReadsNoOptimizerStateInTheFirstStep) {
  TrafficForecast forecast(queue::BankOptions(), kFirst, kSteady);
  const std::vector<std::int64_t> rows = {8};
  EXPECT_EQ(forecast.next(rows), kFirst);
  EXPECT_EQ(forecast.next(rows), kSteady);
  EXPECT_EQ(forecast.next(rows), kSteady);
}

// By hand: each batch fills a segment, and a full one is demoted, since memory holds one alone, the one to fill next.
// A scan reads what is cold; the fourth batch and those after it push the oldest segment out.
TEST(TrafficForecast, FollowsTheBankAsItFillsAndTurnsOver) {
  ASSERT_EQ(queue::place_bank(spilling_bank()).resident_segments, 1);
  TrafficForecast forecast(spilling_bank(), {}, {});
  const std::vector<std::int64_t> rows = {8};
  EXPECT_EQ(forecast.next(rows), (StepBytes{0, 4096}));
  EXPECT_EQ(forecast.next(rows), (StepBytes{4096, 4096}));
  EXPECT_EQ(forecast.next(rows), (StepBytes{2 * 4096, 4096}));
  EXPECT_EQ(forecast.next(rows), (StepBytes{3 * 4096, 4096}));
  EXPECT_EQ(forecast.next(rows), (StepBytes{3 * 4096, 4096}));
}

TEST(TrafficForecast, ScansOncePerMicroBatchAndEnqueuesOncePerWindow) {
  TrafficForecast one(spilling_bank(), {}, {});
  TrafficForecast four(spilling_bank(), {}, {});
  for (int step = 0; step < 6; ++step) {
    const StepBytes whole = one.next(std::vector<std::int64_t>{8});
    const StepBytes parts = four.next(std::vector<std::int64_t>{2, 2, 2, 2});
    EXPECT_EQ(parts.read, 4 * whole.read) << "step " << step;
    EXPECT_EQ(parts.written, whole.written) << "step " << step;
  }
}

TEST(TrafficForecast, ScansForTheRowsOfTheRankAndEnqueuesThoseOfAll) {
  TrafficForecast one(spilling_bank(), {}, {}, 500);
  TrafficForecast rank(spilling_bank(), {}, {}, 500);
  const std::vector<std::int64_t> all = {4, 4};
  const std::vector<std::int64_t> own = {4};
  for (int step = 0; step < 6; ++step) {
    const StepBytes whole = one.next(all);
    const StepBytes part = rank.next(WindowRows{own, 8, 2});
    EXPECT_EQ(part.written, whole.written) << "step " << step;
    EXPECT_EQ(2 * (part.read - 3 * 500), whole.read - 3 * 500) << "step " << step;
  }
}

}  // namespace
}  // namespace spillway::app::traffic_forecast_test

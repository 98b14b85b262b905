#include <spillway/offload/io_counters.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace spillway::offload::io_counters_test {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

TEST(IoCounters, SortsTimesByPowersOfTwo) {
  IoCounters counters;
  counters.count(1, nanoseconds(-5));
  counters.count(1, nanoseconds(999));
  counters.count(1, microseconds(1));
  counters.count(1, microseconds(2));
  counters.count(1, microseconds(3));
  counters.count(1, microseconds(4));
  counters.count(1, hours(10'000));
  EXPECT_EQ(counters.requests, 7U);
  EXPECT_EQ(counters.bytes, 7U);
  EXPECT_EQ(counters.latency[0], 2U);
  EXPECT_EQ(counters.latency[1], 1U);
  EXPECT_EQ(counters.latency[2], 2U);
  EXPECT_EQ(counters.latency[3], 1U);
  EXPECT_EQ(counters.latency[IoCounters::kBuckets - 1], 1U);
}

TEST(IoCounters, BoundsWhatAShareOfTheRequestsTook) {
  IoCounters counters;
  EXPECT_EQ(counters.latency_us_below(0.5), 0U);
  for (int i = 0; i < 99; ++i) {
    counters.count(1, microseconds(100));
  }
  counters.count(1, microseconds(5000));
  EXPECT_EQ(counters.latency_us_below(0.5), 128U);
  EXPECT_EQ(counters.latency_us_below(0.99), 128U);
  EXPECT_EQ(counters.latency_us_below(1.0), 8192U);
}

}  // namespace
}  // namespace spillway::offload::io_counters_test

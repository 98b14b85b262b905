#include <spillway/offload/parallel.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace spillway::offload::parallel_test {
namespace {

std::vector<Range> ranges_of(const Parallel& parallel, std::uint64_t size, std::uint64_t grain) {
  std::mutex mutex;
  std::vector<Range> ranges;
  parallel.for_ranges(size, grain, [&](Range range) {
    const std::lock_guard lock(mutex);
    ranges.push_back(range);
  });
  std::sort(ranges.begin(), ranges.end(), [](Range a, Range b) { return a.begin < b.begin; });
  return ranges;
}

TEST(Parallel, CutsALoopTheSameWayForAnyNumberOfThreadsAndNodes) {
  const std::vector<Range> expected{{0, 100}, {100, 200}, {200, 300}, {300, 307}};
  for (const unsigned threads : {1U, 2U, 3U, 8U}) {
    for (const unsigned nodes : {1U, 2U, 3U}) {
      const Parallel parallel({.threads = threads, .nodes = nodes});
      EXPECT_EQ(ranges_of(parallel, 307, 100), expected) << threads << " threads, " << nodes << " nodes";
      EXPECT_LE(parallel.threads(), threads);
      EXPECT_LE(parallel.nodes(), threads);
    }
  }
}

TEST(Parallel, RunsNothingForAnEmptyLoop) { EXPECT_TRUE(ranges_of(Parallel(), 0, 16).empty()); }

TEST(Parallel, ALoopOfOneRangeStaysOnTheCaller) {
  const Parallel parallel({.threads = 4});
  std::thread::id where;
  parallel.for_ranges(16, 16, [&](Range) { where = std::this_thread::get_id(); });
  EXPECT_EQ(where, std::this_thread::get_id());
}

TEST(Parallel, NeverRunsMoreBodiesAtOnceThanItHasThreads) {
  const Parallel parallel({.threads = 2});
  std::atomic<int> running = 0;
  std::atomic<int> most = 0;
  parallel.for_ranges(2000, 1, [&](Range) {
    const int now = ++running;
    int seen = most.load();
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
    --running;
  });
  EXPECT_LE(most.load(), 2);
}

// Plain memory on purpose: under thread sanitizer a missing order between bodies and caller fails this.
TEST(Parallel, WhatBodiesWriteIsSeenAfterwards) {
  for (const unsigned nodes : {1U, 2U}) {
    const Parallel parallel({.threads = 4, .nodes = nodes});
    std::vector<std::uint64_t> values(10'000);
    for (std::uint64_t round = 1; round <= 20; ++round) {
      parallel.for_ranges(values.size(), 64, [&](Range range) {
        for (std::uint64_t i = range.begin; i < range.end; ++i) {
          values[i] += i * round;
        }
      });
    }
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], i * 210);
    }
  }
}

TEST(Parallel, CarriesAnExceptionToTheCallerAndStaysUsable) {
  for (const unsigned nodes : {1U, 2U}) {
    const Parallel parallel({.threads = 4, .nodes = nodes});
    const auto failing = [](Range range) {
      if (range.begin == 700) {
        throw std::runtime_error("range 700");
      }
    };
    EXPECT_THROW(parallel.for_ranges(1000, 10, failing), std::runtime_error);
    EXPECT_EQ(ranges_of(parallel, 1000, 10).size(), 100U);
  }
}

TEST(Parallel, SeveralCallersShareIt) {
  const Parallel parallel({.threads = 3, .nodes = 2});
  std::atomic<std::uint64_t> sum = 0;
  {
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.emplace_back([&] {
        for (int round = 0; round < 50; ++round) {
          parallel.for_ranges(100, 7, [&](Range range) { sum += range.size(); });
        }
      });
    }
  }
  EXPECT_EQ(sum.load(), 4U * 50U * 100U);
}

}  // namespace
}  // namespace spillway::offload::parallel_test

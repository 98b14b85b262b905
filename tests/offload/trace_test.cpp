#include <spillway/offload/trace.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace spillway::offload::trace_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using Track = Trace::Track;

std::string json(const Trace& trace) {
  std::ostringstream out;
  trace.write_json(out);
  return out.str();
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

/// A span from `begin` to `end` milliseconds after `origin`.
void add(Trace& trace, Trace::Clock::time_point origin, Track track, int begin, int end, std::uint64_t bytes = 0) {
  trace.add(track, "x", origin + std::chrono::milliseconds(begin), origin + std::chrono::milliseconds(end), bytes);
}

TEST(Trace, WritesSpansWithTimesAndBytes) {
  Trace trace;
  const auto origin = Trace::Clock::now();
  add(trace, origin, Track::kReads, 0, 5, 4096);
  const std::string text = json(trace);
  EXPECT_THAT(text, HasSubstr("\"dur\": 5000.000"));
  EXPECT_THAT(text, HasSubstr("\"bytes\": 4096"));
  EXPECT_THAT(text, HasSubstr("\"name\": \"reads\""));
  EXPECT_THAT(text, Not(HasSubstr("\"name\": \"writes\""))) << "a track without spans";
}

TEST(Trace, PutsSpansThatOverlapOnRowsOfTheirOwn) {
  Trace trace;
  const auto origin = Trace::Clock::now();
  add(trace, origin, Track::kReads, 0, 10);
  add(trace, origin, Track::kReads, 5, 15);
  add(trace, origin, Track::kReads, 10, 20);  // The first row is free again.
  add(trace, origin, Track::kStalls, 0, 20);
  const std::string text = json(trace);
  EXPECT_EQ(count(text, "\"name\": \"reads\""), 2U);
  EXPECT_EQ(count(text, "\"tid\": 1000, \"name\": \"x\""), 2U);
  EXPECT_EQ(count(text, "\"tid\": 1001, \"name\": \"x\""), 1U);
  EXPECT_EQ(count(text, "\"tid\": 3000, \"name\": \"x\""), 1U);
}

TEST(Trace, CountsWhatItHasNoRoomFor) {
  Trace trace(3);
  const auto origin = Trace::Clock::now();
  for (int i = 0; i < 5; ++i) {
    add(trace, origin, Track::kWrites, i, i + 1);
  }
  EXPECT_EQ(trace.spans(), 3U);
  EXPECT_EQ(trace.dropped(), 2U);
  const std::string text = json(trace);
  EXPECT_EQ(count(text, "\"ph\": \"X\""), 3U);
  EXPECT_THAT(text, HasSubstr("\"dropped_spans\": 2"));
}

TEST(Trace, TakesSpansFromManyThreads) {
  constexpr std::size_t kEach = 1000;
  Trace trace;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&trace] {
        for (std::size_t n = 0; n < kEach; ++n) {
          const TraceSpan span(&trace, Track::kCompute, "work");
        }
      });
    }
  }
  EXPECT_EQ(trace.spans(), 4 * kEach);
  EXPECT_EQ(count(json(trace), "\"name\": \"work\""), 4 * kEach);
}

TEST(TraceSpan, WithoutATraceDoesNothing) { const TraceSpan span(nullptr, Track::kCompute, "work"); }

}  // namespace
}  // namespace spillway::offload::trace_test

#include <spillway/app/training/step_breakdown.hpp>

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::app::step_breakdown_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TimeBreakdown, SaysTheMeanOfTheStepsSinceTheLastLine) {
  TimeBreakdown times(2);
  EXPECT_FALSE(times.add({0.001, 0.002, 0.003, 0.004, 0.005, 0.006}));
  const auto line = times.add({0.003, 0.002, 0.003, 0.004, 0.005, 0.008});
  ASSERT_TRUE(line);
  EXPECT_EQ(*line,
            "time per step: views 2.00 ms, forward and loss 2.00 ms, backward 3.00 ms, gradients: mean and norm 4.00 "
            "ms, update 5.00 ms, after the update 7.00 ms");
  EXPECT_FALSE(times.add({}));
  EXPECT_THAT(*times.add({}), HasSubstr("views 0.00 ms")) << "sums begin anew with each line";
}

TEST(PhaseSpan, AddsItsTimeToItsPhase) {
  PhaseTimes times{};
  for (int i = 0; i < 2; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const double before = times[2];
    {
      const PhaseSpan span(nullptr, times, StepPhase::kBackward);
      while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(2)) std::this_thread::yield();
    }
    EXPECT_GT(times[2], before + 0.001);
  }
  EXPECT_EQ(times[0] + times[1] + times[3] + times[4] + times[5], 0.0);
}

TEST(MemoryBreakdown, NamesTiersAndProcess) {
  offload::Tiers tiers({.host_bytes = 1U << 20U});
  EXPECT_THAT(describe_memory(tiers), AllOf(HasSubstr("memory: host 0"), HasSubstr("peak"), HasSubstr("process")));
}

}  // namespace
}  // namespace spillway::app::step_breakdown_test

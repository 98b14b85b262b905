// Rates by step against values that were computed by hand from DeepSpeed's formulas (deepspeed/runtime/lr_schedules.py
// of release 0.19; for the stairs of OneCycle, which that release reads and passes over, of its main branch).
#include <spillway/app/training/lr_schedule.hpp>

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::app::lr_schedule_test {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

constexpr double kOptimizerLr = 0.4;
constexpr std::uint64_t kRunSteps = 8;
constexpr double kRounding = 1e-15;  // A few roundings of numbers below 1.

MATCHER(IsTheSameRate, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) <= kRounding; }

std::vector<double> rates(const SchedulerConfig& config, std::uint64_t steps) {
  const LrSchedule schedule(config, kOptimizerLr, kRunSteps);
  std::vector<double> all;
  for (std::uint64_t step = 0; step < steps; ++step) all.push_back(schedule.at(step).lr);
  return all;
}

SchedulerConfig warmup(SchedulerKind kind, WarmupCurve curve, std::uint64_t steps) {
  SchedulerConfig config;
  config.kind = kind;
  config.warmup_type = curve;
  config.warmup_num_steps = steps;
  return config;
}

SchedulerConfig cycle() {
  SchedulerConfig config;
  config.kind = SchedulerKind::kOneCycle;
  config.cycle_min_lr = 0.1;
  config.cycle_max_lr = 0.5;
  config.cycle_first_step_size = 4;
  config.cycle_second_step_size = 2;
  return config;
}

TEST(LrSchedule, IsConstantWithoutAScheduler) {
  EXPECT_THAT(rates({}, 3), Pointwise(IsTheSameRate(), {0.4, 0.4, 0.4}));
  EXPECT_FALSE(LrSchedule({}, kOptimizerLr, kRunSteps).at(0).betas);
}

TEST(LrSchedule, WarmsUpByTheLogarithm) {
  // ln(1), ln(2), ln(3), ln(4) over ln(4).
  EXPECT_THAT(rates(warmup(SchedulerKind::kWarmup, WarmupCurve::kLog, 4), 6),
              Pointwise(IsTheSameRate(), {0.0, 0.2, 0.31699250014423125, 0.4, 0.4, 0.4}));
}

TEST(LrSchedule, WarmsUpInALineFromTheLeastToTheMostRate) {
  SchedulerConfig config = warmup(SchedulerKind::kWarmup, WarmupCurve::kLinear, 4);
  config.warmup_min_lr = 0.1;
  config.warmup_max_lr = 0.5;
  EXPECT_THAT(rates(config, 6), Pointwise(IsTheSameRate(), {0.1, 0.2, 0.3, 0.4, 0.5, 0.5}));
}

TEST(LrSchedule, WarmsUpInTwoStepsAtLeast) {
  for (const std::uint64_t steps : {0U, 1U, 2U}) {
    EXPECT_THAT(rates(warmup(SchedulerKind::kWarmup, WarmupCurve::kLinear, steps), 3),
                Pointwise(IsTheSameRate(), {0.0, 0.2, 0.4}));
  }
}

TEST(LrSchedule, FallsInALineAfterTheWarmUp) {
  SchedulerConfig config = warmup(SchedulerKind::kWarmupDecay, WarmupCurve::kLinear, 4);
  config.warmup_max_lr = 0.4;
  const std::vector<double> wanted = {0.0, 0.1, 0.2, 0.3, 0.4, 0.3, 0.2, 0.1, 0.0, 0.0};
  EXPECT_THAT(rates(config, 10), Pointwise(IsTheSameRate(), wanted)) << "the total is the run's eight steps";
  config.total_num_steps = 6;
  EXPECT_THAT(rates(config, 8), Pointwise(IsTheSameRate(), {0.0, 0.1, 0.2, 0.3, 0.4, 0.2, 0.0, 0.0}));
}

TEST(LrSchedule, FallsByACosineAfterTheWarmUp) {
  SchedulerConfig config = warmup(SchedulerKind::kWarmupCosine, WarmupCurve::kLinear, 2);
  config.total_num_steps = 6;
  config.warmup_min_ratio = 0.2;
  config.cos_min_ratio = 0.1;
  // Shares of 0.4: 0.2, 0.2 + 0.8 / 2, then 0.1 + 0.45 (1 + cos(pi k / 4)) for k = 1 … 4, then 0.1.
  const std::vector<double> wanted = {0.08, 0.24, 0.34727922061357855, 0.22, 0.09272077938642146, 0.04, 0.04};
  EXPECT_THAT(rates(config, 7), Pointwise(IsTheSameRate(), wanted));
}

TEST(LrSchedule, StaysAtTheFloorWhereTheWarmUpIsTheWholeRun) {
  SchedulerConfig config = warmup(SchedulerKind::kWarmupCosine, WarmupCurve::kLinear, 4);
  config.total_num_steps = 2;
  config.cos_min_ratio = 0.25;
  EXPECT_THAT(rates(config, 6), Pointwise(IsTheSameRate(), {0.0, 0.1, 0.2, 0.3, 0.1, 0.1}));
}

TEST(LrSchedule, GoesThroughOneCycleAndThenDecays) {
  SchedulerConfig config = cycle();
  EXPECT_THAT(rates(config, 9), Pointwise(IsTheSameRate(), {0.1, 0.2, 0.3, 0.4, 0.5, 0.3, 0.1, 0.1, 0.1}));
  config.decay_step_size = 2;
  config.decay_lr_rate = 1.0;
  EXPECT_THAT(rates(config, 9), Pointwise(IsTheSameRate(), {0.1, 0.2, 0.3, 0.4, 0.5, 0.3, 0.1, 0.1 / 1.5, 0.1 / 2.0}));
  config.cycle_second_step_size.reset();
  EXPECT_THAT(rates(config, 8), Pointwise(IsTheSameRate(), {0.1, 0.2, 0.3, 0.4, 0.5, 0.4, 0.3, 0.2}));
}

TEST(LrSchedule, GoesUpAndDownInStairs) {
  SchedulerConfig config = cycle();
  config.cycle_first_stair_count = 2;
  EXPECT_THAT(rates(config, 7), Pointwise(IsTheSameRate(), {0.1, 0.1, 0.3, 0.3, 0.5, 0.3, 0.1}));
  config.cycle_second_stair_count = 1;
  EXPECT_THAT(rates(config, 7), Pointwise(IsTheSameRate(), {0.1, 0.1, 0.3, 0.3, 0.5, 0.1, 0.1}));
}

TEST(LrSchedule, CyclesTheMomentumTheOtherWay) {
  SchedulerConfig config = cycle();
  config.decay_step_size = 2;
  config.decay_mom_rate = 0.05;
  const LrSchedule schedule(config, kOptimizerLr, kRunSteps);
  const std::vector<double> wanted = {0.9, 0.875, 0.85, 0.825, 0.8, 0.85, 0.9, 0.9225, 0.945};
  for (std::uint64_t step = 0; step < wanted.size(); ++step) {
    ASSERT_TRUE(schedule.at(step).betas);
    EXPECT_THAT((*schedule.at(step).betas)[0], DoubleNear(wanted[step], kRounding)) << step;
    EXPECT_EQ((*schedule.at(step).betas)[1], 0.99);
  }
  EXPECT_EQ((*schedule.at(100'000).betas)[0], 0.999) << "below 1 however long the decay";
  config.cycle_momentum = false;
  EXPECT_FALSE(LrSchedule(config, kOptimizerLr, kRunSteps).at(0).betas);
}

TEST(LrSchedule, WarmsUpForATenthOfTheRunWhereThatIsLeftOpen) {
  SchedulerConfig config = warmup(SchedulerKind::kWarmup, WarmupCurve::kLinear, 0);
  config.warmup_num_steps.reset();
  EXPECT_DOUBLE_EQ(LrSchedule(config, 1.0, 400).at(10).lr, 0.25);
  EXPECT_DOUBLE_EQ(LrSchedule(config, 1.0, 100'000).at(10).lr, 0.01) << "a thousand steps at most";
}

}  // namespace
}  // namespace spillway::app::lr_schedule_test

#include <spillway/app/training/run_plan.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>

#include "support/errors.hpp"

namespace spillway::app::run_plan_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Config config_of(std::uint64_t batch, std::uint64_t accumulation, std::uint64_t epochs) {
  Config config;
  config.train_batch_size = batch;
  config.gradient_accumulation_steps = accumulation;
  config.micro_batch_size_per_gpu = batch / accumulation;
  config.epochs = epochs;
  return config;
}

TEST(RunPlan, CountsTheLastBatchThatIsNotFull) {
  const RunPlan plan(config_of(8, 1, 3), 20);
  EXPECT_EQ(plan.steps_per_epoch(), 3U);
  EXPECT_EQ(plan.steps(), 9U);
  EXPECT_THAT(plan.rows(0), ElementsAre(8));
  EXPECT_THAT(plan.rows(2), ElementsAre(4));
  EXPECT_THAT(plan.rows(3), ElementsAre(8));
  EXPECT_EQ(plan.place(5).epoch, 1U);
  EXPECT_EQ(plan.place(5).window, 2U);
}

TEST(RunPlan, LeavesThatBatchOutWhereAsked) {
  Config config = config_of(8, 1, 3);
  config.data.drop_last = true;
  EXPECT_EQ(RunPlan(config, 20).steps(), 6U);
}

TEST(RunPlan, RunsForTheStepsThatAreAskedFor) {
  Config config = config_of(8, 1, 0);
  config.steps = 7;
  const RunPlan plan(config, 20);
  EXPECT_EQ(plan.steps(), 7U);
  EXPECT_EQ(plan.place(6).epoch, 2U);
}

TEST(RunPlan, AgreesWithTheOrderOnEveryMicroBatch) {
  const RunPlan plan(config_of(8, 4, 2), 19);
  for (std::uint64_t step = 0; step < plan.steps(); ++step) {
    const StepPlace place = plan.place(step);
    const EpochOrder order = plan.order(place.epoch);
    std::vector<std::int64_t> rows;
    for (std::uint64_t micro = 0; micro < 4; ++micro) {
      const std::size_t size = order.micro_batch(place.window, 0, micro).size();
      if (size > 0) rows.push_back(static_cast<std::int64_t>(size));
    }
    EXPECT_THAT(plan.rows(step), ::testing::ElementsAreArray(rows)) << "step " << step;
  }
  EXPECT_THAT(plan.rows(2), ElementsAre(1, 1, 1)) << "three samples are left for four micro-batches";
}

TEST(RunPlan, SaysThatTheImagesMakeNoBatch) {
  Config config = config_of(32, 1, 1);
  config.data.drop_last = true;
  EXPECT_THAT(message_of<Error>([&] { RunPlan(config, 20); }), HasSubstr("20 images make no batch of 32"));
}

// 19 images in batches of 8 and one of 3, each in four parts: those of rank 0 come first.
TEST(RunPlan, SharesEachBatchBetweenTheRanks) {
  const Config config = config_of(8, 2, 1);
  const RunPlan first(config, 19, {0, 2});
  const RunPlan second(config, 19, {1, 2});
  EXPECT_THAT(first.rows(0), ElementsAre(2, 2));
  EXPECT_THAT(second.rows(0), ElementsAre(2, 2));
  EXPECT_THAT(first.rows(2), ElementsAre(1, 1));
  EXPECT_THAT(second.rows(2), ElementsAre(1));
  for (const RunPlan* plan : {&first, &second}) {
    EXPECT_EQ(plan->window_rows(0).all, 8);
    EXPECT_EQ(plan->window_rows(2).all, 3);
    EXPECT_EQ(plan->window_rows(2).rounds, 2U);
  }
}

}  // namespace
}  // namespace spillway::app::run_plan_test

// Runs that are killed or stopped, and resumed.
#include <chrono>
#include <csignal>
#include <random>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "system/program.hpp"

namespace spillway::test::kill_test {
namespace {

using ::testing::HasSubstr;

std::string weights(const Workplace& place) { return member<std::string>(place.summary(), "weights_xxh3"); }

/// A run long enough to be killed in the middle, and written down in every second step.
SpawnOptions long_run(const Workplace& place) {
  return place.on_disk({"--steps", "60", "--resume", "auto", "--set", "checkpoint.every=2"});
}

/// Where the run ends if nobody disturbs it.
const std::string& undisturbed() {
  static const std::string hash = [] {
    const Workplace place;
    const Outcome outcome = run(program(), long_run(place));
    EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
    return weights(place);
  }();
  return hash;
}

TEST(Kill, ARunThatIsKilledTimeAndAgainEndsWhereItWouldHave) {
  const Workplace place;
  std::mt19937 random(7);
  std::uniform_int_distribution<int> milliseconds(0, 150);
  int killed = 0;
  for (int start = 0; start < 5; ++start) {
    Child child(program(), long_run(place));
    child.wait_for_output("/60");  // Of a step, which a resumed run counts on.
    try {
      (void)child.wait(std::chrono::milliseconds(milliseconds(random)));  // Kills it at this deadline.
    } catch (const std::runtime_error&) {
      ++killed;
    }
  }
  EXPECT_GE(killed, 3) << "the run is too short to be killed in the middle";
  const Outcome outcome = run(program(), long_run(place));
  ASSERT_EQ(outcome.exit_status, 0) << outcome.error;
  EXPECT_EQ(weights(place), undisturbed());
}

class Stopped : public ::testing::TestWithParam<int> {};

TEST_P(Stopped, WritesACheckpointAndGoesOnFromIt) {
  const int status = 128 + (GetParam() == SIGHUP ? SIGTERM : GetParam());
  const Workplace place;
  SpawnOptions options = place.on_disk({"--steps", "60", "--resume", "auto", "--set", "checkpoint.every=1000"});
  Child child(program(), options);
  child.wait_for_output("step 3");
  child.signal(GetParam());
  const Outcome stopped = child.wait();
  EXPECT_EQ(stopped.exit_status, status);
  EXPECT_THAT(stopped.output, HasSubstr("--resume auto goes on"));
  const Outcome resumed = run(program(), options);
  ASSERT_EQ(resumed.exit_status, 0) << resumed.error;
  EXPECT_THAT(resumed.output, HasSubstr("resumed from"));
  EXPECT_EQ(weights(place), undisturbed());
}

INSTANTIATE_TEST_SUITE_P(Signals, Stopped, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

// Signals of two kinds, of which none can hide the other.
TEST(StoppedRun, TwiceEndsAtOnceAndLeavesTheCheckpointBefore) {
  const Workplace place;
  SpawnOptions options = place.on_disk({"--steps", "60", "--resume", "auto", "--set", "checkpoint.every=2"});
  Child child(program(), options);
  child.wait_for_output("step 5/");
  child.signal(SIGTERM);
  child.signal(SIGINT);
  const Outcome ended = child.wait();
  EXPECT_TRUE(ended.exit_status == 128 + SIGTERM || ended.exit_status == 128 + SIGINT) << ended.exit_status;
  EXPECT_THAT(ended.output, ::testing::Not(HasSubstr("stopped by a signal")));
  const Outcome resumed = run(program(), options);
  ASSERT_EQ(resumed.exit_status, 0) << resumed.error;
  EXPECT_EQ(weights(place), undisturbed());
}

// It writes checkpoints most of the time, so that the signal comes while it does.
TEST(StoppedRun, WhileItWritesACheckpointCompletesIt) {
  const Workplace place;
  for (const char* const step : {"step 2/", "step 5/", "step 9/"}) {
    Child child(program(), place.on_disk({"--steps", "60", "--resume", "auto", "--set", "checkpoint.every=1"}));
    child.wait_for_output(step);
    child.signal(SIGTERM);
    EXPECT_EQ(child.wait().exit_status, 128 + SIGTERM);
    const auto names = names_in(place.run_folder() / "checkpoints");
    EXPECT_THAT(names, ::testing::Each(::testing::Not(HasSubstr("partial"))));
    const Outcome verified = run(program(), {.arguments = {"verify", place.run_folder()}});
    EXPECT_EQ(verified.exit_status, 0) << verified.output;
  }
}

TEST(StoppedRun, NotByAReaderOfItsOutputWhoGoesAway) {
  const Workplace place;
  SpawnOptions options = place.on_disk();
  std::string command = program().string();
  for (const std::string& argument : options.arguments) command += " '" + argument + "'";
  options.arguments = {"-c", command + " | head -n 1"};
  EXPECT_EQ(run("/bin/sh", options).exit_status, 0);
  EXPECT_EQ(member<std::uint64_t>(place.summary(), "steps"), 12U);
}

}  // namespace
}  // namespace spillway::test::kill_test

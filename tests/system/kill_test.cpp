// Runs that are killed or stopped, and resumed.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/property.hpp"
#include "system/program.hpp"
#include "system/rank_programs.hpp"

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

/// How many kills; SPILLWAY_KILLS sets another number.
int wanted_kills(int usual) {
  const char* const wanted = std::getenv("SPILLWAY_KILLS");
  return wanted == nullptr ? usual : std::stoi(wanted);
}

SpawnOptions long_run_of(const Workplace& place, int ranks) {
  std::vector<std::string> more = {"--steps", "60", "--resume", "auto", "--set", "checkpoint.every=2"};
  if (ranks > 1) more.insert(more.end(), {"--set", "zero_optimization.stage=2", "--host-budget", "507000"});
  return place.on_disk(more);
}

std::string end_of_run(const Workplace& place, int ranks) {
  RankPrograms run(ranks, long_run_of(place, ranks));
  for (const Outcome& outcome : run.wait()) EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
  return weights(place);
}

class Kill : public ::testing::TestWithParam<int> {
 protected:
  /// Starts a run, or goes on with it, and kills one of its ranks at some moment after its first step.
  /// @returns whether it had ended before.
  bool start_and_kill(const Workplace& place) {
    RankPrograms run(GetParam(), long_run_of(place, GetParam()));
    try {
      run.rank(0).wait_for_output("/60");  // Of a step, which a resumed run counts on.
    } catch (const std::runtime_error&) {
      return true;  // There was none left to do.
    }
    const auto victim = static_cast<std::size_t>(random_.below(static_cast<std::uint64_t>(GetParam())));
    bool ended = false;
    try {
      ended = run.rank(victim).wait(std::chrono::milliseconds(random_.below(150))).exit_status == 0;
    } catch (const std::runtime_error&) {  // It was killed at this deadline.
      ++kills_;
    }
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(GetParam()); ++rank) {
      if (rank != victim) (void)run.rank(rank).wait();
    }
    return ended;
  }

  Random random_{7};
  int kills_ = 0;
};

TEST_P(Kill, ARunThatIsKilledTimeAndAgainEndsWhereItWouldHave) {
  const int wanted = wanted_kills(GetParam() == 1 ? 30 : 10);
  const Workplace whole;
  const std::string weights_of_whole = end_of_run(whole, GetParam());
  int runs = 0;
  for (; kills_ < wanted; ++runs) {
    const Workplace place;
    while (!start_and_kill(place) && kills_ < wanted) EXPECT_THAT(names_in(place.swap()), ::testing::IsEmpty());
    EXPECT_EQ(end_of_run(place, GetParam()), weights_of_whole) << "after " << kills_ << " kills";
    ASSERT_LT(runs, wanted) << "runs are too short to be killed in the middle";
  }
  std::cout << kills_ << " kills in " << runs << " runs on " << GetParam() << " ranks\n";
}

INSTANTIATE_TEST_SUITE_P(Ranks, Kill, ::testing::Values(1, 2));

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

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
  const Workplace place;
  SpawnOptions options = place.on_disk({"--steps", "60", "--resume", "auto", "--set", "checkpoint.every=1000"});
  Child child(program(), options);
  child.wait_for_output("step 3");
  child.signal(GetParam());
  const Outcome stopped = child.wait();
  EXPECT_EQ(stopped.exit_status, 128 + GetParam());
  EXPECT_THAT(stopped.output, HasSubstr("--resume auto goes on"));
  const Outcome resumed = run(program(), options);
  ASSERT_EQ(resumed.exit_status, 0) << resumed.error;
  EXPECT_THAT(resumed.output, HasSubstr("resumed from"));
  EXPECT_EQ(weights(place), undisturbed());
}

INSTANTIATE_TEST_SUITE_P(Signals, Stopped, ::testing::Values(SIGINT, SIGTERM));

}  // namespace
}  // namespace spillway::test::kill_test

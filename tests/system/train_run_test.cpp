#include <csignal>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "system/program.hpp"

namespace spillway::test::train_run_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Hash of the final weights of a run that has to succeed.
std::string weights(const Workplace& place, const SpawnOptions& options) {
  const Outcome outcome = run(program(), options);
  EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
  EXPECT_THAT(outcome.error, IsEmpty());
  return member<std::string>(place.summary(), "weights_xxh3");
}

/// Whether a process has a nameless file of `folder` open, by which it swaps.
bool swaps_to(pid_t process, const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
    std::error_code gone;  // Descriptors come and go meanwhile.
    if (std::filesystem::read_symlink(entry.path(), gone).string().starts_with(folder.string() + "/")) return true;
  }
  return false;
}

TEST(TrainRun, GivesTheSameBitsInMemoryAndOnDiskWithEitherEngine) {
  const Workplace place;
  const std::string in_memory = weights(place, place.in_memory());
  EXPECT_EQ(member<std::uint64_t>(place.summary(), "read_bytes"), 0U);

  EXPECT_EQ(weights(place, place.on_disk({"--set", "aio.engine=threads"})), in_memory);
  EXPECT_GT(member<std::uint64_t>(place.summary(), "read_bytes"), 0U);
  EXPECT_EQ(weights(place, place.on_disk({"--set", "aio.engine=auto"})), in_memory);
  EXPECT_EQ(weights(place, place.on_disk({"--deterministic", "--no-progress"})), in_memory);
  EXPECT_NE(weights(place, place.in_memory({"--seed", "4"})), in_memory) << "the hash tells nothing";
}

TEST(TrainRun, MovesTheBytesThatItPredicted) {
  const Workplace place;
  (void)weights(place, place.on_disk());
  const app::Json summary = place.summary();
  EXPECT_EQ(member<std::uint64_t>(summary, "steps"), 12U);
  EXPECT_EQ(member<std::uint64_t>(summary, "steps_off_prediction"), 0U);
  EXPECT_EQ(member<std::uint64_t>(summary, "read_bytes"), member<std::uint64_t>(summary, "predicted_read_bytes"));
  EXPECT_EQ(member<std::uint64_t>(summary, "write_bytes"), member<std::uint64_t>(summary, "predicted_write_bytes"));
}

TEST(TrainRun, SaysBeforehandWhereEverythingIsAndAfterwardsWhatItCameTo) {
  const Workplace place;
  const Outcome outcome = run(program(), place.on_disk());
  for (const char* text : {"optimizer state, streamed", "bank, cold segments", "predicted disk traffic", "step 12/12",
                           "loss", "few-label accuracy", "stall", "as predicted in every step", "weights "}) {
    EXPECT_THAT(outcome.output, HasSubstr(text));
  }
  EXPECT_THAT(names_in(place.swap()), IsEmpty());
}

TEST(TrainRun, LeavesACheckpointWhoseAccuraciesAreThoseOfTheSummary) {
  const Workplace place;
  (void)weights(place, place.on_disk());
  SpawnOptions options{.arguments = {"eval", place.run_folder().string(), "--json"}};
  options.environment = {{"OMP_NUM_THREADS", "1"}};
  const Outcome outcome = run(program(), options);
  ASSERT_EQ(outcome.exit_status, 0) << outcome.error;
  const app::Json report = app::parse_json(outcome.output, "the report");
  const app::Json& accuracy = *report.find("accuracy");
  const app::Json whole = place.summary();
  const app::Json& summary = *whole.find("accuracy");
  EXPECT_EQ(member<double>(accuracy, "few_label"), member<double>(summary, "trained"));
  EXPECT_EQ(member<double>(accuracy, "knn"), member<double>(*summary.find("knn"), "trained"));
  EXPECT_GT(member<double>(accuracy, "linear"), member<double>(summary, "raw") / 2);

  options.arguments = {"eval",     place.run_folder() / "checkpoints/step_0000000012", "--probe", "linear", "--data",
                       "synthetic"};
  EXPECT_THAT(run(program(), options).output, ::testing::AllOf(HasSubstr("linear"), HasSubstr("synthetic")));
}

TEST(TrainRun, SwapsToItsOwnFolderWhereNoneIsNamed) {
  const Workplace place;
  SpawnOptions options = place.on_disk();
  options.arguments.resize(options.arguments.size() - 2);  // Without --nvme-path.
  (void)weights(place, options);
  EXPECT_GT(member<std::uint64_t>(place.summary(), "read_bytes"), 0U);
  EXPECT_THAT(names_in(place.run_folder()),
              ::testing::UnorderedElementsAre("checkpoints", "config.json", "metrics.jsonl", "summary.json"));
}

TEST(TrainRun, LeavesNothingInTheSwapFolderWhenItIsKilled) {
  const Workplace place;
  Child child(program(), place.on_disk({"--steps", "1000000"}));
  child.wait_for_output("step 5/");
  ASSERT_TRUE(swaps_to(child.pid(), place.swap())) << "there was nothing to leave";
  child.signal(SIGKILL);
  EXPECT_EQ(child.wait().exit_status, 128 + SIGKILL);
  EXPECT_THAT(names_in(place.swap()), IsEmpty());
}

class TrainRunSignal : public ::testing::TestWithParam<int> {};

TEST_P(TrainRunSignal, EndsAfterTheStepWithASummaryOfWhatWasDone) {
  const Workplace place;
  Child child(program(), place.on_disk({"--steps", "1000000"}));
  child.wait_for_output("step 3/");
  child.signal(GetParam());
  const Outcome outcome = child.wait();
  EXPECT_EQ(outcome.exit_status, 128 + GetParam()) << outcome.error;
  EXPECT_THAT(outcome.output, HasSubstr("stopped by a signal"));
  EXPECT_GE(member<std::uint64_t>(place.summary(), "steps"), 3U);
  EXPECT_THAT(names_in(place.swap()), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(All, TrainRunSignal, ::testing::Values(SIGINT, SIGTERM),
                         [](const auto& signal) { return signal.param == SIGINT ? "Interrupt" : "Terminate"; });

}  // namespace
}  // namespace spillway::test::train_run_test

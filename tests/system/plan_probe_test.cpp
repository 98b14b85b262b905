#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "system/program.hpp"

namespace spillway::test::plan_probe_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// `spillway plan` with the flags of a run.
Outcome plan(SpawnOptions options, const std::vector<std::string>& more = {}) {
  options.arguments.front() = "plan";
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  return run(program(), options);
}

TEST(Plan, SaysOfEveryStepAndTierWhatTheRunThenDoes) {
  const Workplace place;
  const Outcome outcome = plan(place.on_disk(), {"--json"});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.error;
  EXPECT_THAT(names_in(place.swap()), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(place.run_folder())) << "a plan makes no run";
  const app::Json planned = app::parse_json(outcome.output, "the plan");

  ASSERT_EQ(run(program(), place.on_disk()).exit_status, 0);
  const app::Json summary = place.summary();
  EXPECT_EQ(member<std::uint64_t>(planned, "steps"), member<std::uint64_t>(summary, "steps"));
  const app::Json& moved = *planned.find("run");
  EXPECT_EQ(member<std::uint64_t>(moved, "read_bytes"), member<std::uint64_t>(summary, "read_bytes"));
  EXPECT_EQ(member<std::uint64_t>(moved, "write_bytes"), member<std::uint64_t>(summary, "write_bytes"));
  for (const char* tier : {"host", "disk"}) {
    const app::Json& wanted = *planned.find("tiers")->find(tier);
    EXPECT_EQ(member<std::uint64_t>(wanted, "used_bytes"),
              member<std::uint64_t>(*summary.find("tiers")->find(tier), "peak_bytes"))
        << tier;
  }
  EXPECT_GT(member<double>(planned, "seconds_per_step"), 0.0);
  const auto& links = *planned.find("links")->get_if<app::Json::Array>();
  ASSERT_EQ(links.size(), 3U);
  EXPECT_EQ(member<std::string>(links.front(), "name"), member<std::string>(planned, "limiting"));
}

TEST(Plan, IsReadableAndWantsNoDiskWhereNothingGoesThere) {
  const Workplace place;
  const Outcome outcome = plan(place.in_memory());
  ASSERT_EQ(outcome.exit_status, 0) << outcome.error;
  for (const char* text : {"bank, newest segments", "other: optimizer state, in no budget", "a step", "limited by"}) {
    EXPECT_THAT(outcome.output, HasSubstr(text));
  }
}

TEST(Plan, LooksAtTheDiskOfARunFolderThatIsNotThereYet) {
  const Workplace place;
  SpawnOptions options = place.on_disk();
  options.arguments.resize(options.arguments.size() - 2);  // Without --nvme-path.
  const Outcome outcome = plan(options);
  EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
  EXPECT_FALSE(std::filesystem::exists(place.run_folder()));
}

TEST(Plan, RefusesWhatTheRunWouldRefuse) {
  const Workplace place;
  const Outcome outcome = plan(place.on_disk(), {"--host-budget", "65536"});
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_THAT(outcome.error, HasSubstr("offload.host_bytes"));
}

TEST(Probe, SaysWhatThereIs) {
  const Workplace place;
  const Outcome outcome = run(program(), {.arguments = {"probe", "--nvme-path", place.swap().string(), "--json"}});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.error;
  const app::Json probe = app::parse_json(outcome.output, "the probe");
  const auto& disks = *probe.find("disks")->get_if<app::Json::Array>();
  ASSERT_EQ(disks.size(), 1U);
  EXPECT_EQ(member<std::string>(disks.front(), "folder"), place.swap().string());
  EXPECT_GT(member<double>(disks.front(), "read_bytes_per_s"), 0.0);
  EXPECT_THAT(names_in(place.swap()), IsEmpty());
}

TEST(Probe, NamesAFolderThatIsMissing) {
  const Workplace place;
  const Outcome outcome = run(program(), {.arguments = {"probe", "--nvme-path", (place / "none").string()}});
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_THAT(outcome.error, HasSubstr("none"));
}

}  // namespace
}  // namespace spillway::test::plan_probe_test

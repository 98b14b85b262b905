// The demonstration, whole: what `make demo` runs, and the same with everything in memory.
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/data/dataset.hpp>

#include "system/program.hpp"

namespace spillway::test::demo_test {
namespace {

using ::testing::IsEmpty;

app::Json run_demo(const TempDir& folder, const std::vector<std::string>& more) {
  SpawnOptions options;
  options.arguments = {"train", "--config", SPILLWAY_DEMO, "--out", folder.path()};
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  const Outcome outcome = run(program(), options, std::chrono::minutes(5));
  EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
  EXPECT_THAT(outcome.error, IsEmpty());
  return app::parse_json(read_text(folder / "summary.json"), "summary.json");
}

double accuracy(const app::Json& summary, const std::string& of) {
  return member<double>(*summary.find("accuracy"), of);
}

TEST(Demo, LearnsFromDiskWhatItLearnsInMemory) {
  if (!std::filesystem::exists(app::default_data_folders().cache / "data" / "mnist_5k.csv.gz")) {
    GTEST_SKIP() << "the MNIST-5k images are not there: scripts/bootstrap data fetches them";
  }
  const TempDir folder;
  const app::Json on_disk = run_demo(folder, {});
  EXPECT_NEAR(accuracy(on_disk, "raw"), 73.0, 3.0);
  EXPECT_GE(accuracy(on_disk, "trained"), 82.0);
  EXPECT_GT(member<std::uint64_t>(on_disk, "read_bytes"), 100U << 20U);
  EXPECT_EQ(member<std::uint64_t>(on_disk, "steps_off_prediction"), 0U);
  EXPECT_EQ(member<std::uint64_t>(on_disk, "read_bytes"), member<std::uint64_t>(on_disk, "predicted_read_bytes"));
  EXPECT_EQ(member<std::uint64_t>(on_disk, "write_bytes"), member<std::uint64_t>(on_disk, "predicted_write_bytes"));

  const app::Json in_memory = run_demo(folder, {"--offload-optimizer", "none", "--offload-bank", "none"});
  EXPECT_EQ(member<std::uint64_t>(in_memory, "read_bytes"), 0U);
  EXPECT_EQ(member<std::string>(in_memory, "weights_xxh3"), member<std::string>(on_disk, "weights_xxh3"));
}

}  // namespace
}  // namespace spillway::test::demo_test

// Runs that go on with another number of ranks than wrote the checkpoint.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "system/program.hpp"
#include "system/rank_programs.hpp"

namespace spillway::test::reshard_test {
namespace {

using ::testing::HasSubstr;

/// BYOL, whose micro-batches are those of the ranks: two ranks are bit for bit one that accumulates two, so that a run
/// may go from one to the other. Each has a batch of 64 images at a time.
std::vector<std::string> byol(int world_size, int steps) {
  std::vector<std::string> arguments = {"--method", "byol",
                                        "--steps",  std::to_string(steps),
                                        "--resume", "auto",
                                        "--set",    "checkpoint.every=3",
                                        "--set",    "gradient_accumulation_steps=" + std::to_string(2 / world_size)};
  if (world_size > 1) {
    arguments.insert(arguments.end(), {"--set", "zero_optimization.stage=2", "--host-budget", "800000"});
  }
  return arguments;
}

/// Goes on to so many steps. @returns the hash of the weights then.
std::string go_on(const Workplace& place, int world_size, int steps, bool on_disk) {
  const auto arguments = byol(world_size, steps);
  RankPrograms ranks(world_size, on_disk ? place.on_disk(arguments) : place.in_memory(arguments));
  for (const Outcome& outcome : ranks.wait()) EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
  return member<std::string>(place.summary(), "weights_xxh3");
}

TEST(ReshardedRun, EndsBitForBitWhereItWouldHaveOnAsManyRanksAsBefore) {
  const Workplace undisturbed;
  const std::string weights = go_on(undisturbed, 1, 9, false);
  const Workplace place;
  (void)go_on(place, 2, 3, true);
  EXPECT_THAT(names_in(place.run_folder() / "checkpoints/step_0000000003"),
              ::testing::IsSupersetOf({"rank_0.safetensors", "rank_1.safetensors", "rank_1.optimizer.pt"}));
  (void)go_on(place, 1, 6, true);
  EXPECT_EQ(go_on(place, 2, 9, false), weights);
}

// As many images as three ranks and five have no equal shares of: the weights are those of the checkpoint.
TEST(ReshardedRun, TakesUpTheWeightsOnThreeAndFiveRanks) {
  const Workplace place;
  const auto moco = [&](const std::string& out, int world_size, const std::vector<std::string>& from) {
    std::vector<std::string> arguments = {"--steps",       "4",
                                          "--set",         "train_batch_size=60",
                                          "--set",         "gradient_accumulation_steps=1",
                                          "--set",         "zero_optimization.stage=2",
                                          "--set",         "contrastive.batch_norm_groups=1",
                                          "--host-budget", "4000000"};
    arguments.insert(arguments.end(), from.begin(), from.end());
    RankPrograms ranks(world_size, into(place.in_memory(arguments), place / out));
    for (const Outcome& outcome : ranks.wait()) EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
    const auto path = place / out / "summary.json";
    return member<std::string>(app::parse_json(read_text(path), path.string()), "weights_xxh3");
  };
  const std::string weights = moco("two", 2, {});
  EXPECT_EQ(moco("three", 3, {"--resume", place / "two"}), weights);
  EXPECT_EQ(moco("five", 5, {"--resume", place / "two"}), weights);
}

}  // namespace
}  // namespace spillway::test::reshard_test

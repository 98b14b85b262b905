// Runs of the program on two ranks, from outside.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "system/program.hpp"
#include "system/rank_programs.hpp"

namespace spillway::test::ranks_run_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class TwoRanks : public RankPrograms {
 public:
  explicit TwoRanks(const SpawnOptions& options, const std::vector<std::string>& more_on_second = {})
      : RankPrograms(2, options, more_on_second) {}
};

std::vector<std::string> method(const std::string& name, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--method", name});
  return more;
}

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string weights(const Workplace& place) { return member<std::string>(place.summary(), "weights_xxh3"); }

/// Hash of the weights of a run that has to succeed, which both ranks have at the end or fail.
std::string on_two_ranks(const Workplace& place, const SpawnOptions& options) {
  TwoRanks run(options);
  const Outcome first = run.rank(0).wait();
  const Outcome second = run.rank(1).wait();
  EXPECT_EQ(first.exit_status, 0) << first.error;
  EXPECT_EQ(second.exit_status, 0) << second.error;
  EXPECT_THAT(first.error + second.error + second.output, IsEmpty());
  EXPECT_THAT(first.output, HasSubstr("on 2 ranks"));
  EXPECT_EQ(member<std::uint64_t>(place.summary(), "steps_off_prediction"), 0U);
  return weights(place);
}

std::string on_one_rank(const Workplace& place, const SpawnOptions& options) {
  const Outcome outcome = run(program(), options);
  EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
  return weights(place);
}

/// A number of each step, from metrics.jsonl.
std::vector<double> column(const Workplace& place, const std::string& name) {
  std::istringstream lines(read_text(place.run_folder() / "metrics.jsonl"));
  std::vector<double> values;
  for (std::string line; std::getline(lines, line);) {
    const app::Json json = app::parse_json(line, "a line of metrics.jsonl");
    values.push_back(member<double>(json, name));
  }
  return values;
}

const std::vector<std::string> kSharded = {"--set", "zero_optimization.stage=2"};
/// Sums of several micro-batches are made in another order where they are sharded.
const std::vector<std::string> kOneMicroBatch = {"--set", "gradient_accumulation_steps=1"};
/// With room for MoCo's gradients and staging buffers, and for a part of the state.
const std::vector<std::string> kShardedOnDisk = {"--set", "zero_optimization.stage=2", "--host-budget", "507000"};

/// Where MoCo ends on two ranks after twelve steps of a micro-batch, wherever its parts are.
const std::string& end_of_moco() {
  static const std::string hash = [] {
    const Workplace place;
    return on_two_ranks(place, place.in_memory(kOneMicroBatch));
  }();
  return hash;
}

// The ranks' batches are the micro-batches of one rank; sums and powers of 2 are exact in the same order.
TEST(RanksRun, OfByolIsBitForBitOneRankThatAccumulates) {
  const Workplace place;
  const std::vector<std::string> steps = method("byol", {"--steps", "4", "--set", "gradient_accumulation_steps=1"});
  const std::string replicated = on_two_ranks(place, place.in_memory(steps));
  EXPECT_EQ(on_two_ranks(place, place.in_memory(with(steps, kSharded))), replicated);
  EXPECT_EQ(on_one_rank(place, place.in_memory(method("byol", {"--steps", "4"}))), replicated);
  EXPECT_NE(on_one_rank(place, place.in_memory(steps)), replicated) << "the control";
}

TEST(RanksRun, GoesOnWhereARankHasNoSampleOfTheLastBatch) {
  const auto few = [](const std::string& name, int images, std::vector<std::string> more) {
    const std::string count = "data.synthetic.images=" + std::to_string(images);
    return with(method(name, std::move(more)),
                {"--data", "synthetic", "--set", count, "--set", "data.synthetic.classes=1"});
  };
  const Workplace place;
  {
    // One image to train on.
    const std::vector<std::string> one =
        few("byol", 2, {"--steps", "2", "--set", "train_batch_size=4", "--set", "data.train_fraction=0.5"});
    const std::string two = on_two_ranks(place, place.in_memory(with(one, kSharded)));
    EXPECT_EQ(on_one_rank(place, place.in_memory(one)), two);
  }
  const std::vector<std::string> steps = {"--steps", "4", "--set", "train_batch_size=20"};  // 20, 20 and 1 of 41.
  (void)on_two_ranks(place, place.in_memory(few("moco", 51, steps)));
  (void)on_two_ranks(place, place.in_memory(few("supcon", 51, with(steps, kSharded))));
  (void)on_two_ranks(place,
                     place.in_memory(few("simclr", 51, with(steps, {"--set", "contrastive.accumulation=cached"}))));
}

// One rank that compares all rows of its micro-batches with one another sees the negatives that two ranks see.
TEST(RanksRun, OfSimClrHasTheLossAndTheGradientOfTheWholeBatch) {
  const Workplace place;
  const std::vector<std::string> sgd =
      method("simclr", {"--steps", "4", "--set", "optimizer.type=SGD", "--set", "optimizer.params={\"lr\":0.05}"});
  const auto values = [&] { return std::pair(column(place, "loss"), column(place, "grad_norm")); };
  (void)on_two_ranks(place, place.in_memory(with(sgd, {"--set", "gradient_accumulation_steps=1"})));
  const auto [losses, norms] = values();
  (void)on_one_rank(place, place.in_memory(with(sgd, {"--set", "contrastive.accumulation=cached"})));
  const auto [whole_losses, whole_norms] = values();
  ASSERT_EQ(losses.size(), 4U);
  for (std::size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(losses[step], whole_losses[step], 1e-5 * whole_losses[step]) << step;
    EXPECT_NEAR(norms[step], whole_norms[step], 1e-5 * whole_norms[step]) << step;
  }
  (void)on_one_rank(place, place.in_memory(sgd));  // The control: each micro-batch by itself.
  EXPECT_GT(std::abs(values().first[0] - losses[0]), 0.1 * losses[0]);
}

TEST(RanksRun, OfMocoGivesTheSameBitsWhateverIsWhere) {
  const Workplace place;
  EXPECT_EQ(on_two_ranks(place, place.on_disk(kOneMicroBatch)), end_of_moco());
  EXPECT_GT(member<std::uint64_t>(place.summary(), "read_bytes"), 0U);
  EXPECT_EQ(
      on_two_ranks(place, place.on_disk(with(with(kShardedOnDisk, kOneMicroBatch), {"--offload-gradients", "nvme"}))),
      end_of_moco());
  EXPECT_GT(member<std::uint64_t>(place.summary(), "read_bytes"), 0U);
}

TEST(RanksRun, GoesOnFromACheckpointBitForBit) {
  const Workplace place;
  const auto arguments = [](const char* steps, const std::vector<std::string>& stage) {
    return with(with(stage, kOneMicroBatch), {"--steps", steps, "--resume", "auto"});
  };
  (void)on_two_ranks(place, place.on_disk(arguments("5", kShardedOnDisk)));
  EXPECT_THAT(names_in(place.run_folder() / "checkpoints" / "step_0000000005"),
              UnorderedElementsAre("manifest.json", "rank_0.optimizer.pt", "rank_0.safetensors", "rank_1.optimizer.pt",
                                   "rank_1.safetensors"));

  (void)on_two_ranks(place, place.on_disk(arguments("8", {})));  // State that each rank has all of.
  EXPECT_THAT(names_in(place.run_folder() / "checkpoints" / "step_0000000008"),
              ::testing::Not(::testing::Contains("rank_1.optimizer.pt")));
  EXPECT_EQ(on_two_ranks(place, place.in_memory(with(arguments("12", kSharded), {"--host-budget", "1000000"}))),
            end_of_moco());
  EXPECT_EQ(column(place, "loss").size(), 12U);
}

TEST(RanksRun, StopsOnAllRanksAtASignalToOneAndGoesOn) {
  const Workplace place;
  const auto arguments = [](const char* steps) {
    return std::vector<std::string>{"--steps", steps, "--resume", "auto", "--set", "checkpoint.every=1000"};
  };
  {
    TwoRanks run(place.on_disk(arguments("100000")));
    run.rank(0).wait_for_output("step 3");
    run.rank(1).signal(SIGTERM);
    const Outcome first = run.rank(0).wait();
    EXPECT_EQ(first.exit_status, 128 + SIGTERM) << first.error;
    EXPECT_EQ(run.rank(1).wait().exit_status, 128 + SIGTERM);
    EXPECT_THAT(first.output, HasSubstr("--resume auto goes on"));
  }
  const auto done = member<std::uint64_t>(place.summary(), "steps");
  (void)on_two_ranks(place, place.on_disk(arguments(std::to_string(done + 1).c_str())));
  EXPECT_EQ(member<std::uint64_t>(place.summary(), "steps"), done + 1);
}

std::size_t lines(const std::string& text) { return static_cast<std::size_t>(std::ranges::count(text, '\n')); }

TEST(RanksRun, EndsWithTheNameOfARankThatDied) {
  const Workplace place;
  TwoRanks run(place.in_memory({"--steps", "100000"}));
  run.rank(0).wait_for_output("step 3");
  run.rank(1).signal(SIGKILL);
  const Outcome first = run.rank(0).wait();
  EXPECT_EQ(first.exit_status, 1);
  EXPECT_THAT(first.error, AllOf(HasSubstr("spillway: rank 0: "), HasSubstr("rank 1")));
  EXPECT_EQ(lines(first.error), 1U) << first.error;
}

TEST(RanksRun, EndsWithTheNameOfARankThatHangs) {
  const Workplace place;
  TwoRanks run(place.in_memory({"--steps", "100000", "--set", "ranks.timeout_s=2"}));
  run.rank(0).wait_for_output("step 3");
  run.rank(1).signal(SIGSTOP);
  const Outcome first = run.rank(0).wait();
  EXPECT_EQ(first.exit_status, 1);
  EXPECT_THAT(first.error, AllOf(HasSubstr("rank 1"), HasSubstr("2000 ms")));
  EXPECT_EQ(lines(first.error), 1U) << first.error;
}

TEST(RanksRun, NamesTheFirstKeyThatIsNotTheSameOnAllRanks) {
  const Workplace place;
  TwoRanks run(place.in_memory(), {"--seed", "4"});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Outcome outcome = run.rank(rank).wait();
    EXPECT_EQ(outcome.exit_status, 2);
    EXPECT_THAT(outcome.error, HasSubstr("seed: 3 on rank 0, 4 on rank 1"));
    EXPECT_EQ(lines(outcome.error), 1U) << outcome.error;
  }
  EXPECT_FALSE(std::filesystem::exists(place.run_folder()));
}

TEST(RanksRun, RefusesABatchThatTheRanksCanNotShare) {
  const Workplace place;
  TwoRanks run(place.in_memory({"--set", "train_batch_size=130"}));  // Two micro-batches on each of two ranks.
  const Outcome outcome = run.rank(1).wait();
  EXPECT_EQ(outcome.exit_status, 2);
  EXPECT_THAT(outcome.error, HasSubstr("train_batch_size: 130"));
}

}  // namespace
}  // namespace spillway::test::ranks_run_test

#include <spillway/app/cli/command_line.hpp>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/cli/byte_size.hpp>
#include <spillway/app/cli/train_command.hpp>
#include <spillway/offload/error.hpp>
#include <support/temp_dir.hpp>

namespace spillway::app::command_line_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TrainFlags train(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "train");
  return std::get<TrainFlags>(parse_command_line(arguments));
}

std::string refusal(const std::vector<std::string>& arguments) {
  try {
    (void)parse_command_line(arguments);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  }
  return "(accepted)";
}

TEST(ByteSize, ReadsTheFormsThatPeopleWrite) {
  EXPECT_EQ(parse_byte_size("65536", "x"), 65536U);
  EXPECT_EQ(parse_byte_size("2e9", "x"), 2'000'000'000U);
  EXPECT_EQ(parse_byte_size("64MiB", "x"), 64U << 20U);
  EXPECT_EQ(parse_byte_size("64 mib", "x"), 64U << 20U);
  EXPECT_EQ(parse_byte_size("1.5GiB", "x"), 3U << 29U);
  EXPECT_EQ(parse_byte_size("10GB", "x"), 10'000'000'000U);
  EXPECT_EQ(parse_byte_size("512B", "x"), 512U);
}

TEST(ByteSize, RefusesWhatIsNoWholeNumberOfBytes) {
  for (const char* text : {"", "0", "-1", "1.5", "64M", "MiB", "64MiB!", "1e30", "nan", "inf"}) {
    EXPECT_THROW((void)parse_byte_size(text, "--host-budget"), ConfigError) << "'" << text << "'";
  }
}

TEST(CommandLine, GivesTheFlagsOfTrainAsTheyStand) {
  const TrainFlags flags = train({"--config",
                                  "a.json",
                                  "--set",
                                  "seed=3",
                                  "--set",
                                  "data.drop_last=true",
                                  "--method",
                                  "moco",
                                  "--data",
                                  "digits",
                                  "--encoder",
                                  "mlp",
                                  "--steps",
                                  "7",
                                  "--eval-every",
                                  "2",
                                  "--out",
                                  "o",
                                  "--seed",
                                  "0",
                                  "--offload-optimizer",
                                  "nvme",
                                  "--offload-gradients",
                                  "nvme",
                                  "--offload-bank",
                                  "cpu",
                                  "--nvme-path",
                                  "/x",
                                  "--host-budget",
                                  "2MiB",
                                  "--deterministic",
                                  "--strict",
                                  "--no-progress",
                                  "--nproc",
                                  "1"});
  EXPECT_EQ(flags.config, "a.json");
  EXPECT_THAT(flags.set, ElementsAre("seed=3", "data.drop_last=true"));
  EXPECT_EQ(flags.data, "digits");
  EXPECT_EQ(flags.encoder, "mlp");
  EXPECT_EQ(flags.steps, 7U);
  EXPECT_EQ(flags.eval_every, 2U);
  EXPECT_EQ(flags.epochs, std::nullopt);
  EXPECT_EQ(flags.seed, 0U);
  EXPECT_EQ(flags.offload_optimizer, "nvme");
  EXPECT_EQ(flags.offload_gradients, "nvme");
  EXPECT_EQ(flags.offload_bank, "cpu");
  EXPECT_EQ(flags.nvme_path, "/x");
  EXPECT_EQ(flags.host_budget_bytes, 2U << 20U);
  EXPECT_TRUE(flags.deterministic && flags.strict && flags.no_progress);
}

TEST(CommandLine, LeavesEverythingOpenWithoutFlags) {
  const TrainFlags flags = train({});
  EXPECT_EQ(flags.config, std::nullopt);
  EXPECT_EQ(flags.out, std::nullopt);
  EXPECT_EQ(flags.host_budget_bytes, std::nullopt);
  EXPECT_FALSE(flags.deterministic || flags.strict || flags.no_progress);
}

TEST(CommandLine, NamesTheFlagThatIsWrong) {
  EXPECT_THAT(refusal({"train", "--frobnicate"}), HasSubstr("--frobnicate"));
  EXPECT_THAT(refusal({"train", "--epochs", "0"}), HasSubstr("--epochs"));
  EXPECT_THAT(refusal({"train", "--seed", "-1"}), HasSubstr("--seed"));
  EXPECT_THAT(refusal({"train", "--epochs", "1", "--steps", "1"}), HasSubstr("--steps"));
  EXPECT_THAT(refusal({"train", "--offload-bank", "gpu"}), HasSubstr("--offload-bank"));
  EXPECT_THAT(refusal({"train", "--host-budget", "lots"}), HasSubstr("--host-budget"));
  EXPECT_THAT(refusal({"train", "--method", "jigsaw"}), HasSubstr("jigsaw"));
  EXPECT_THAT(refusal({"train", "--init", "a", "--init-part", "head"}), HasSubstr("--init-part"));
  EXPECT_THAT(refusal({"train", "--init-part", "encoder"}), HasSubstr("--init"));
  EXPECT_THAT(refusal({"eval"}), HasSubstr("checkpoint"));
  EXPECT_THAT(refusal({"eval", "run", "--probe", "svm"}), HasSubstr("--probe"));
  EXPECT_THAT(refusal({}), HasSubstr("which command"));
  EXPECT_THAT(refusal({"bench"}), HasSubstr("which bench"));
  EXPECT_THAT(refusal({"dance"}), HasSubstr("dance"));
}

TEST(CommandLine, TakesWhatLooksIntoCheckpoints) {
  const auto inspect = std::get<InspectFlags>(parse_command_line({"inspect", "run", "--tensors", "--json"}));
  EXPECT_EQ(inspect.checkpoint, "run");
  EXPECT_TRUE(inspect.tensors && inspect.json);
  EXPECT_EQ(std::get<VerifyFlags>(parse_command_line({"verify", "run"})).checkpoint, "run");
  const auto flags =
      std::get<ExportFlags>(parse_command_line({"export", "run", "--format", "torch", "--out", "weights.pt"}));
  EXPECT_EQ(flags.format, "torch");
  EXPECT_EQ(flags.out, "weights.pt");
  EXPECT_THAT(refusal({"inspect"}), HasSubstr("checkpoint"));
  EXPECT_THAT(refusal({"export", "run", "--format", "onnx", "--out", "x"}), HasSubstr("onnx"));
  EXPECT_THAT(refusal({"export", "run", "--format", "torch"}), HasSubstr("--out"));
}

TEST(CommandLine, SaysOfWhatIsStillMissingThatItIs) {
  const std::vector<std::vector<std::string>> missing = {{"bench", "optimizer", "--report", "a"},
                                                         {"bench", "bank", "--report", "a"},
                                                         {"bench", "data", "--report", "a"},
                                                         {"bench", "io", "--report", "a"},
                                                         {"train", "--nproc", "2"}};
  for (const auto& arguments : missing) {
    EXPECT_THAT(refusal(arguments), HasSubstr("not in this version; ")) << arguments.front();
  }
}

TEST(CommandLine, TakesPlanWithTheFlagsOfARun) {
  const auto flags = std::get<PlanFlags>(parse_command_line({"plan", "--config", "a.json", "--json", "--steps", "3"}));
  EXPECT_EQ(flags.train.config, "a.json");
  EXPECT_EQ(flags.train.steps, 3U);
  EXPECT_TRUE(flags.json);
  EXPECT_FALSE(std::get<PlanFlags>(parse_command_line({"plan"})).json);
}

TEST(CommandLine, TakesProbeWithItsFolders) {
  EXPECT_THAT(std::get<ProbeFlags>(parse_command_line({"probe"})).nvme_paths, ElementsAre("."));
  const auto flags = std::get<ProbeFlags>(parse_command_line({"probe", "--nvme-path", "a,b", "--json"}));
  EXPECT_THAT(flags.nvme_paths, ElementsAre("a", "b"));
  EXPECT_TRUE(flags.json);
}

TEST(CommandLine, TakesRowsAndRoundsOfTheBench) {
  const auto options =
      std::get<BenchIoOptions>(parse_command_line({"bench", "io", "--rows", "read,overwrite", "--rounds", "3"}));
  EXPECT_THAT(options.rows, ElementsAre("read", "overwrite"));
  EXPECT_EQ(options.rounds, 3U);
  EXPECT_THAT(refusal({"bench", "io", "--rounds", "0"}), HasSubstr("--rounds"));
}

TEST(CommandLine, TakesTheBenchOfTheOptimizer) {
  const auto options = std::get<BenchOptimizerOptions>(
      parse_command_line({"bench", "optimizer", "--rows", "fp32_flat", "--numel", "262144", "--json", "o.json"}));
  EXPECT_THAT(options.rows, ElementsAre("fp32_flat"));
  EXPECT_EQ(options.numel, 262'144U);
  EXPECT_EQ(options.json, "o.json");
}

TEST(CommandLine, TakesTheBenchOfTheBank) {
  const auto options = std::get<BenchBankOptions>(parse_command_line(
      {"bench", "bank", "--rows", "memory_128,disk_8", "--capacity", "512", "--bytes", "16MiB", "--nvme-path", "d"}));
  EXPECT_THAT(options.rows, ElementsAre("memory_128", "disk_8"));
  EXPECT_EQ(options.capacity, 512U);
  EXPECT_EQ(options.bytes, std::uint64_t{16} << 20);
  EXPECT_EQ(options.nvme_path, "d");
}

TEST(CommandLine, TakesTheBenchOfAStep) {
  const auto options = std::get<BenchStepOptions>(
      parse_command_line({"bench", "step", "--rows", "step_8bit", "--numel", "204800", "--nvme-path", "d"}));
  EXPECT_THAT(options.rows, ElementsAre("step_8bit"));
  EXPECT_EQ(options.numel, 204'800U);
  EXPECT_EQ(options.nvme_path, "d");
}

TEST(CommandLine, LetsFlagsGoBeforeAssignmentsAndTheseBeforeTheFile) {
  const test::TempDir folder;
  const std::string file = folder / "c.json";
  std::ofstream(file) << R"({"seed": 1, "train_batch_size": 8, "zero_optimization": {"cpu_offload": true}})";
  const auto config = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--config", file});
    return resolve(train(std::move(more))).config;
  };
  EXPECT_EQ(config({}).seed, 1U);
  EXPECT_EQ(config({"--set", "seed=2"}).seed, 2U);
  EXPECT_EQ(config({"--seed", "3", "--set", "seed=2"}).seed, 3U) << "in whatever order";
  EXPECT_EQ(config({"--set", "seed=2", "--set", "seed=4"}).seed, 4U);
  EXPECT_EQ(config({"--eval-every", "5"}).evaluation.every, 5U);
  EXPECT_EQ(config({}).train_batch_size, 8U);
  EXPECT_EQ(config({}).zero.offload_optimizer.device, OffloadDevice::kCpu);
  EXPECT_EQ(config({"--offload-optimizer", "nvme"}).zero.offload_optimizer.device, OffloadDevice::kNvme)
      << "also where the file has the old spelling";
}

TEST(CommandLine, TakesAFileForTheTrace) { EXPECT_EQ(train({"--trace", "a.json"}).trace, "a.json"); }

TEST(CommandLine, HelpAndVersionAreTexts) {
  EXPECT_THAT(std::get<Information>(parse_command_line({"--version"})).text, HasSubstr("spillway 0."));
  EXPECT_THAT(std::get<Information>(parse_command_line({"--help"})).text, HasSubstr("train"));
  EXPECT_THAT(std::get<Information>(parse_command_line({"train", "--help"})).text, HasSubstr("--offload-optimizer"));
}

TEST(CommandLine, GivesTheFlagsOfBenchIo) {
  const auto options = std::get<BenchIoOptions>(
      parse_command_line({"bench", "io", "--json", "r.json", "--nvme-path", "d", "--bytes", "256MiB"}));
  EXPECT_EQ(options.json, "r.json");
  EXPECT_EQ(options.nvme_path, "d");
  EXPECT_EQ(options.bytes, std::uint64_t{256} << 20);
}

}  // namespace
}  // namespace spillway::app::command_line_test

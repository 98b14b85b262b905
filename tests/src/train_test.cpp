#include <spillway/app/training/train.hpp>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/config/config_keys.hpp>
#include <spillway/app/config/load_config.hpp>
#include <spillway/app/methods/moco.hpp>
#include <spillway/app/training/weights_hash.hpp>
#include <spillway/offload/error.hpp>
#include <support/temp_dir.hpp>

#include "src/streamed_run.hpp"
#include "support/errors.hpp"

namespace spillway::app::train_test {
namespace {

using test::streamed_config;
using ::testing::HasSubstr;

std::vector<Json> lines_of(const std::filesystem::path& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(parse_json(line, path.string()));
  return lines;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::uint64_t count(const Json& object, const char* key) { return *object.find(key)->get_if<std::uint64_t>(); }

TEST(Train, MovesInEveryStepTheBytesThatItPredicted) {
  const test::TempDir folder;
  std::ostringstream out;
  const Summary summary = train(streamed_config(folder), {out});

  // 250 images, 200 of them to train on: 7 windows an epoch, the last one of 8 rows.
  ASSERT_EQ(summary.steps, 21U);
  EXPECT_EQ(summary.steps_off_prediction, 0U) << out.str();
  EXPECT_EQ(summary.read_bytes, summary.predicted_read_bytes);
  EXPECT_EQ(summary.write_bytes, summary.predicted_write_bytes);

  const std::vector<Json> metrics = lines_of(folder / "run/metrics.jsonl");
  ASSERT_EQ(metrics.size(), 21U);
  std::uint64_t read = 0;
  for (const Json& line : metrics) read += count(line, "read_bytes");
  EXPECT_EQ(read, summary.read_bytes);
  EXPECT_EQ(count(metrics[0], "read_bytes"), 0U) << "nothing has been written yet";
  EXPECT_GT(count(metrics[1], "read_bytes"), 0U);
  EXPECT_GT(count(metrics[0], "write_bytes"), 0U);
}

TEST(Train, EndsAtTheSameWeightsWhereverGradientsAreAddedUp) {
  std::vector<std::string> hashes;
  for (const OffloadDevice device : {OffloadDevice::kNone, OffloadDevice::kCpu, OffloadDevice::kNvme}) {
    const test::TempDir folder;
    std::ostringstream out;
    Config config = streamed_config(folder);
    config.steps = 5;
    config.epochs = 0;
    config.offload.gradients = device;
    config.offload.host_bytes += 1U << 20U;
    const Summary summary = train(config, {out});
    hashes.push_back(summary.weights_xxh3);
    EXPECT_EQ(summary.steps_off_prediction, 0U) << out.str();
    EXPECT_EQ(out.str().find("gradients, streamed") != std::string::npos, device == OffloadDevice::kNvme);
  }
  EXPECT_EQ(hashes[1], hashes[0]);
  EXPECT_EQ(hashes[2], hashes[0]);
}

TEST(Train, RunsEveryMethodAlikeInMemoryAndOnDisk) {
  for (const Method method : {Method::kSimClr, Method::kSupCon, Method::kByol, Method::kSimSiam}) {
    const test::TempDir folder;
    std::ostringstream out;
    Config config = streamed_config(folder);
    config.method = method;
    config.steps = 5;
    config.epochs = 0;
    config.offload.host_bytes = 5 * 36864;  // No bank: four staging buffers, one block.
    if (method == Method::kSimSiam) config.contrastive.projection_head = HeadKind::kBatchNormOutput;
    const Summary on_disk = train(config, {out});
    EXPECT_GT(on_disk.read_bytes, 0U);
    EXPECT_EQ(on_disk.steps_off_prediction, 0U) << out.str();
    EXPECT_EQ(on_disk.read_bytes, on_disk.predicted_read_bytes);

    config.zero.offload_optimizer.device = OffloadDevice::kNone;
    config.offload.host_bytes = 1ULL << 30U;
    const Summary in_memory = train(config, {out});
    EXPECT_EQ(in_memory.read_bytes, 0U);
    EXPECT_EQ(in_memory.weights_xxh3, on_disk.weights_xxh3) << to_string(method);
  }
}

TEST(Train, WritesATraceOfTransfersAndOfThePartsOfAStep) {
  const test::TempDir folder;
  std::ostringstream out;
  const std::string file = folder / "trace.json";
  Config config = streamed_config(folder);
  config.steps = 3;
  (void)train(config, {out, {}, nullptr, file});
  const std::string text = text_of(file);
  for (const char* part :
       {"\"read\"", "\"write\"", "\"backward\"", "\"update\"", "\"forward and loss\"", "\"compute\""}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(out.str(), HasSubstr(file));
}

// Both streams are there: without the bank's the steps would all read alike.
TEST(Train, StreamsStateAndBank) {
  const test::TempDir folder;
  std::ostringstream out;
  (void)train(streamed_config(folder), {out});
  const std::vector<Json> metrics = lines_of(folder / "run/metrics.jsonl");
  EXPECT_GT(count(metrics.back(), "read_bytes"), count(metrics[1], "read_bytes"));
  EXPECT_THAT(out.str(), HasSubstr("optimizer state, streamed"));
  EXPECT_THAT(out.str(), HasSubstr("bank, cold segments"));
}

TEST(Train, StaysWithinItsBudgetsAndSaysSo) {
  const test::TempDir folder;
  const Config config = streamed_config(folder);
  std::ostringstream out;
  const Summary summary = train(config, {out});
  EXPECT_EQ(summary.host.budget_bytes, config.offload.host_bytes);
  EXPECT_LE(summary.host.peak_bytes, config.offload.host_bytes);
  EXPECT_GT(summary.host.peak_bytes, config.contrastive.bank.host_bytes / 2);
  EXPECT_GT(summary.disk.peak_bytes, 0U);
  EXPECT_GE(summary.stall_share, 0.0);
  EXPECT_LT(summary.stall_share, 1.0);
}

TEST(Train, GivesTheSameWeightsFromTheConfigurationThatItWrote) {
  const test::TempDir folder;
  std::ostringstream out;
  const Config config = streamed_config(folder);
  const Summary first = train(config, {out});
  const std::string text = text_of(folder / "run/config.json");
  ConfigRequest request;
  request.text = text;
  const ResolvedConfig resolved = load_config(request);
  EXPECT_TRUE(resolved.warnings.empty()) << resolved.warnings.front();
  EXPECT_EQ(resolved.config, config);
  EXPECT_EQ(train(resolved.config, {out}).weights_xxh3, first.weights_xxh3);
}

TEST(Train, FollowsItsScheduleAndWritesTheRateOfEachStep) {
  const test::TempDir folder;
  std::ostringstream out;
  Config config = streamed_config(folder);
  config.steps = 6;
  config.epochs = 0;
  const std::string constant = train(config, {out}).weights_xxh3;
  config.scheduler.kind = SchedulerKind::kWarmup;
  config.scheduler.warmup_type = WarmupCurve::kLinear;
  config.scheduler.warmup_num_steps = 4;
  config.optimizer.lr = 0.5;
  const std::string scheduled = train(config, {out}).weights_xxh3;
  std::vector<double> rates;
  for (const Json& line : lines_of(folder / "run/metrics.jsonl")) rates.push_back(*line.find("lr")->get_if<double>());
  EXPECT_THAT(rates, ::testing::ElementsAre(0.0, 0.125, 0.25, 0.375, 0.5, 0.5));
  config.optimizer.lr = 1e-3;
  EXPECT_NE(train(config, {out}).weights_xxh3, constant) << "the rates are only written";
  EXPECT_NE(scheduled, constant);
}

TEST(Train, MeasuresAccuraciesEverySoManyEpochsAndChangesNoWeightByIt) {
  const test::TempDir folder;
  std::ostringstream out;
  Config config = streamed_config(folder);
  const std::string unmeasured = train(config, {out}).weights_xxh3;
  EXPECT_THAT(text_of(folder / "run/metrics.jsonl"), ::testing::Not(HasSubstr("accuracy")));
  config.epochs = 4;
  config.evaluation.every = 2;
  const Summary summary = train(config, {out});
  const std::vector<Json> lines = lines_of(folder / "run/metrics.jsonl");
  ASSERT_EQ(lines.size(), 28U);
  for (std::size_t step = 1; step <= lines.size(); ++step) {
    EXPECT_EQ(lines[step - 1].find("accuracy") != nullptr, step == 14 || step == 28) << step;
  }
  EXPECT_EQ(*lines[27].find("accuracy")->find("few_label"), Json(summary.accuracy.trained));
  EXPECT_EQ(*lines[27].find("accuracy")->find("knn"), Json(summary.knn_accuracy.trained));
  EXPECT_GT(summary.knn_accuracy.raw, 100.0 / 5);
  EXPECT_THAT(out.str(), HasSubstr("epoch 2: few-label accuracy"));
  config.epochs = 3;
  config.evaluation.every = 1;
  EXPECT_EQ(train(config, {out}).weights_xxh3, unmeasured);
}

TEST(Train, ShowsTheBreakdownsThatAreAskedForAtEachPrint) {
  const test::TempDir folder;
  std::ostringstream quiet;
  Config config = streamed_config(folder);
  config.steps = 5;
  config.epochs = 0;
  config.steps_per_print = 2;
  (void)train(config, {quiet});
  for (const char* text : {"time per step", "memory: host", "\"zero_optimization\""}) {
    EXPECT_THAT(quiet.str(), ::testing::Not(HasSubstr(text)));
  }
  config.wall_clock_breakdown = config.memory_breakdown = config.dump_state = true;
  std::ostringstream out;
  (void)train(config, {out});
  const std::string text = out.str();
  EXPECT_THAT(text, HasSubstr("\"zero_optimization\""));
  for (const std::string line : {"time per step: views", "memory: host"}) {
    const std::size_t first = text.find(line);
    const std::size_t second = text.find(line, first + 1);
    EXPECT_NE(second, std::string::npos) << line;
    EXPECT_EQ(text.find(line, second + 1), std::string::npos) << line;
  }
}

TEST(Train, GivesTheSameWeightsOverSeveralRingsOfOneFolder) {
  const test::TempDir folder;
  std::ostringstream out;
  Config config = streamed_config(folder);
  config.steps = 5;
  config.epochs = 0;
  const std::string one = train(config, {out}).weights_xxh3;
  EXPECT_THAT(out.str(), ::testing::Not(HasSubstr("striped")));
  config.aio.intra_op_parallelism = 3;
  EXPECT_EQ(train(config, {out}).weights_xxh3, one);
  EXPECT_THAT(out.str(), HasSubstr("striped"));
}

TEST(Train, DependsOnItsSeed) {
  const test::TempDir folder;
  std::ostringstream out;
  Config config = streamed_config(folder);
  config.epochs = 1;
  const std::string one = train(config, {out}).weights_xxh3;
  config.seed = 1;
  EXPECT_NE(train(config, {out}).weights_xxh3, one);
}

TEST(Train, ReplacesTheFilesOfAnEarlierRunAndLeavesNoOthers) {
  const test::TempDir folder;
  std::ostringstream out;
  Config config = streamed_config(folder);
  (void)train(config, {out});
  config.epochs = 1;
  (void)train(config, {out});
  EXPECT_EQ(lines_of(folder / "run/metrics.jsonl").size(), 7U);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "run"))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("config.json", "metrics.jsonl", "summary.json", "checkpoints",
                                                     "checkpoints.1"));
}

TEST(Train, RefusesABudgetThatHoldsNotEvenTheStagingBuffers) {
  const test::TempDir folder;
  std::ostringstream out;
  Config config = streamed_config(folder);
  config.offload.host_bytes = config.contrastive.bank.host_bytes + 4096;
  EXPECT_THROW((void)train(config, {out}), BudgetExceeded);
}

TEST(Train, RunsAResNetFromDiskInABudgetThatDoesNotHoldItsState) {
  const test::TempDir folder;
  std::ostringstream out;
  Config config = streamed_config(folder);
  config.steps = 2;
  config.epochs = 0;
  config.train_batch_size = config.micro_batch_size_per_gpu = 4;
  config.gradient_accumulation_steps = 1;
  config.data.synthetic = {.images = 12, .classes = 2, .side = 12};
  config.encoder = {.kind = EncoderKind::kResNet18, .checkpointing = true};
  config.zero.sub_group_size = 1U << 21U;  // The largest unit is one tensor of 2.4 million.
  config.zero.offload_optimizer.buffer_count = 2;
  config.offload.host_bytes = 64U << 20U;
  const Summary on_disk = train(config, {out});
  EXPECT_LE(on_disk.host.peak_bytes, config.offload.host_bytes);
  EXPECT_GT(on_disk.read_bytes, 0U);
  EXPECT_EQ(on_disk.steps_off_prediction, 0U) << out.str();

  config.zero.offload_optimizer.device = OffloadDevice::kCpu;
  EXPECT_THAT(message_of<BudgetExceeded>([&] { (void)train(config, {out}); }),
              AllOf(HasSubstr("host memory for optimizer state is too small"), HasSubstr("85."), HasSubstr("nvme")));

  config.zero.offload_optimizer.device = OffloadDevice::kNone;
  config.encoder.checkpointing = false;
  out.str("");
  EXPECT_EQ(train(config, {out}).weights_xxh3, on_disk.weights_xxh3);
  EXPECT_THAT(out.str(), HasSubstr("other: optimizer state, in no budget"));
}

TEST(Train, GivesTheSameWeightsOverOneFolderAndOverThree) {
  const test::TempDir first;
  const test::TempDir second;
  const test::TempDir third;
  std::ostringstream out;
  Config one = streamed_config(first);
  one.deterministic = true;  // Equal shares: nothing is measured, and nothing kept in this user's cache.
  Config several = one;
  several.out = (second / "run").string();
  several.offload.nvme_paths = {first.path(), second.path(), third.path()};
  EXPECT_EQ(train(one, {out}).weights_xxh3, train(several, {out}).weights_xxh3);
  EXPECT_THAT(out.str(), HasSubstr(third.path().string()));
}

TEST(WeightsHash, CountsNamesOrderAndEveryBit) {
  const at::Tensor a = at::ones({3});
  const at::Tensor b = at::zeros({2});
  const std::string hash = weights_xxh3({{"a", a}, {"b", b}});
  EXPECT_EQ(hash.size(), 16U);
  EXPECT_EQ(weights_xxh3({{"b", b}, {"a", a}}), hash) << "the order is that of the names";
  EXPECT_NE(weights_xxh3({{"b", a}, {"a", b}}), hash);
  const at::Tensor other = b.clone();
  other[1] = 1e-30;
  EXPECT_NE(weights_xxh3({{"a", a}, {"b", other}}), hash);
}

}  // namespace
}  // namespace spillway::app::train_test

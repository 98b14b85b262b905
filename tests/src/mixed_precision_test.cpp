// Runs in fp16, bf16 and under autocast: the same bits wherever things lie and wherever a run was interrupted, and
// steps that are skipped.
#include <spillway/app/training/mixed_precision.hpp>

#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/checkpoint/tensor_file.hpp>
#include <spillway/app/config/json.hpp>
#include <spillway/app/training/resume.hpp>
#include <spillway/app/training/train.hpp>
#include <spillway/offload/error.hpp>
#include <support/temp_dir.hpp>

#include "src/streamed_run.hpp"
#include "support/errors.hpp"

namespace spillway::app::mixed_precision_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A short run with state, masters, sums of gradients and bank on disk.
Config streamed(const test::TempDir& folder, bool half) {
  Config config = test::streamed_config(folder);
  config.epochs = 0;
  config.steps = 6;
  config.evaluation.draws = 1;
  config.fp16.enabled = half;
  config.fp16.initial_scale_power = 8;  // No gradient overflows.
  config.bf16.enabled = !half;
  config.offload.gradients = OffloadDevice::kNvme;
  config.zero.offload_optimizer.buffer_count = 2;
  // Two staging buffers of the state (masters of float32 make 12 bytes an element) and of the sums, and a block.
  config.offload.host_bytes = config.contrastive.bank.host_bytes + 3 * 61440 + 2 * 20480;
  return config;
}

Summary run(const Config& config, std::string* output = nullptr, std::optional<std::string> resume = {}) {
  std::ostringstream out;
  TrainOptions options{out};
  options.resume = std::move(resume);
  const Summary summary = train(config, options);
  if (output != nullptr) *output = out.str();
  EXPECT_EQ(summary.steps_off_prediction, 0U) << out.str();
  return summary;
}

std::vector<Json> metrics_of(const Config& config) {
  std::vector<Json> lines;
  std::ifstream file(std::filesystem::path(config.out) / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) lines.push_back(parse_json(line, "metrics.jsonl"));
  return lines;
}

template <typename Value>
std::vector<Value> column(const Config& config, const char* key) {
  std::vector<Value> values;
  for (const Json& line : metrics_of(config)) {
    const Json& value = *line.find(key);
    if constexpr (std::is_same_v<Value, double>) {
      const auto* const whole = value.get_if<std::uint64_t>();
      values.push_back(whole != nullptr ? static_cast<double>(*whole) : *value.get_if<double>());
    } else {
      values.push_back(*value.get_if<Value>());
    }
  }
  return values;
}

std::string checkpoint(const Config& config, int step) {
  std::string name = std::to_string(step);
  name.insert(0, 10 - name.size(), '0');
  return (checkpoint_root(config.out) / ("step_" + name)).string();
}

/// Names of the tensors in which two checkpoints of a run differ.
std::vector<std::string> differences(const Config& config, int step, int other) {
  const TensorFileReader one(checkpoint(config, step) + "/rank_0.safetensors");
  const TensorFileReader two(checkpoint(config, other) + "/rank_0.safetensors");
  std::vector<std::string> names;
  for (const TensorEntry& entry : one.entries()) {
    const at::Tensor there = two.read(entry.name);
    if (!there.defined() || !one.read(entry.name).equal(there)) names.push_back(entry.name);
  }
  EXPECT_EQ(one.entries().size(), two.entries().size());
  return names;
}

class MixedPrecisionOf : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Types, MixedPrecisionOf, ::testing::Bool(),
                         [](const auto& type) { return std::string(type.param ? "Fp16" : "Bf16"); });

TEST_P(MixedPrecisionOf, GivesTheSameBitsWhereverStateAndGradientsLieAndMovesThePredictedBytes) {
  const test::TempDir folder;
  const Config streamed_run = streamed(folder, GetParam());
  std::string output;
  const Summary on_disk = run(streamed_run, &output);
  EXPECT_EQ(on_disk.skipped_steps, 0U);
  EXPECT_EQ(on_disk.read_bytes, on_disk.predicted_read_bytes);
  EXPECT_EQ(on_disk.write_bytes, on_disk.predicted_write_bytes);
  EXPECT_GT(on_disk.read_bytes, 0U);
  EXPECT_THAT(output, AllOf(HasSubstr("optimizer state, streamed"), HasSubstr("gradients, streamed")));
  for (const OffloadDevice device : {OffloadDevice::kCpu, OffloadDevice::kNone}) {
    Config config = streamed_run;
    config.zero.offload_optimizer.device = config.offload.gradients = device;
    config.contrastive.bank.device = OffloadDevice::kNone;
    config.offload.host_bytes = 1U << 30U;
    const Summary in_memory = run(config);
    EXPECT_EQ(in_memory.weights_xxh3, on_disk.weights_xxh3);
    EXPECT_EQ(in_memory.loss_last, on_disk.loss_last);
    EXPECT_EQ(in_memory.read_bytes, 0U);
  }
}

TEST_P(MixedPrecisionOf, AccumulatesInOneWindowOfGradientsAsTheyComeToo) {
  const test::TempDir folder;
  Config config = streamed(folder, GetParam());
  config.gradient_accumulation_steps = 1;  // Sums are the gradients, in 16 bits.
  config.micro_batch_size_per_gpu = config.train_batch_size;
  const Summary on_disk = run(config);
  EXPECT_GT(on_disk.read_bytes, 0U);
  config.offload.gradients = OffloadDevice::kNone;
  config.offload.host_bytes = 1U << 30U;
  EXPECT_EQ(run(config).weights_xxh3, on_disk.weights_xxh3);
}

TEST_P(MixedPrecisionOf, EndsAtTheSameBitsWhereItWasResumed) {
  const test::TempDir folder;
  Config config = streamed(folder, GetParam());
  config.checkpoint = {.every = 2, .keep_last = 100};
  config.fp16.initial_scale_power = 24;  // Some steps overflow, and are part of the history.
  config.fp16.hysteresis = 1;
  config.scheduler.kind = SchedulerKind::kWarmup;
  config.scheduler.warmup_num_steps = 4;
  config.steps = 18;
  config.fp16.loss_scale_window = 3;
  const Summary whole = run(config);
  EXPECT_EQ(whole.skipped_steps > 0, GetParam());
  for (const int step : {4, 14}) {
    Config again = config;
    again.out = folder / ("from_" + std::to_string(step));
    const Summary resumed = run(again, nullptr, checkpoint(config, step));
    EXPECT_EQ(resumed.weights_xxh3, whole.weights_xxh3) << step;
    EXPECT_EQ(resumed.skipped_steps, whole.skipped_steps);
    EXPECT_EQ(resumed.loss_last, whole.loss_last);
    EXPECT_EQ(resumed.read_bytes, whole.read_bytes);
    EXPECT_EQ(column<double>(again, "loss_scale").back(), column<double>(config, "loss_scale").back());
  }
}

// Codes that are widened for a checkpoint have to come back as they were.
TEST(StateInEightBits, EndsAtTheSameBitsInMemoryOnDiskAndWhereItWasResumed) {
  const test::TempDir folder;
  Config config = streamed(folder, false);
  config.bf16.enabled = false;
  config.offload.state_dtype = StateDtype::kInt8;
  config.checkpoint = {.every = 3, .keep_last = 100};
  const Summary whole = run(config);
  EXPECT_GT(whole.read_bytes, 0U);
  Config again = config;
  again.out = folder / "resumed";
  EXPECT_EQ(run(again, nullptr, checkpoint(config, 3)).weights_xxh3, whole.weights_xxh3);
  config.zero.offload_optimizer.device = config.offload.gradients = OffloadDevice::kNone;
  config.offload.host_bytes = 1U << 30U;
  EXPECT_EQ(run(config).weights_xxh3, whole.weights_xxh3);
  config.offload.state_dtype = StateDtype::kFp32;
  EXPECT_NE(run(config).weights_xxh3, whole.weights_xxh3);
}

TEST_P(MixedPrecisionOf, RunsEveryMethod) {
  for (const Method method : {Method::kSimClr, Method::kSupCon, Method::kByol, Method::kSimSiam}) {
    const test::TempDir folder;
    Config config = streamed(folder, GetParam());
    config.method = method;
    config.contrastive.accumulation = method == Method::kSimClr ? Accumulation::kCached : Accumulation::kPlain;
    if (method == Method::kSimSiam) config.contrastive.projection_head = HeadKind::kBatchNormOutput;
    const Summary on_disk = run(config);
    EXPECT_TRUE(std::isfinite(on_disk.loss_last));
    config.zero.offload_optimizer.device = config.offload.gradients = OffloadDevice::kNone;
    config.offload.host_bytes = 1U << 30U;
    EXPECT_EQ(run(config).weights_xxh3, on_disk.weights_xxh3);
  }
}

// The first step meets an empty bank and has gradients of 0; the second one's overflow, whatever is multiplied by 2^60.
TEST(SkippedStep, LeavesNoTraceButInTheScaleAndIsShown) {
  const test::TempDir folder;
  Config config = streamed(folder, true);
  config.fp16.initial_scale_power = 60;
  config.fp16.hysteresis = 2;
  config.steps = 4;
  config.checkpoint = {.every = 1, .keep_last = 10};
  std::string output;
  const Summary summary = run(config, &output);
  EXPECT_EQ(summary.skipped_steps, 3U);
  EXPECT_THAT(column<bool>(config, "skipped"), ::testing::ElementsAre(false, true, true, true));
  EXPECT_THAT(column<double>(config, "loss_scale"), ::testing::ElementsAre(0x1p60, 0x1p60, 0x1p60, 0x1p59))
      << "the first overflow is borne";
  EXPECT_THAT(output, AllOf(HasSubstr("step 2 is skipped: the gradient of encoder."), HasSubstr("skipped 3"),
                            HasSubstr("3 steps skipped")));
  EXPECT_THAT(differences(config, 1, 4), ::testing::ElementsAre("loss_scale"));
  const TensorFileReader file(checkpoint(config, 4) + "/rank_0.safetensors");
  EXPECT_EQ(file.find("bank.values")->sizes[0], 32) << "the rows of the first step";

  // The control: a step that is made changes weights, moving average, state, running statistics and bank.
  config.fp16.initial_scale_power = 8;
  EXPECT_EQ(run(config).skipped_steps, 0U);
  EXPECT_THAT(differences(config, 1, 4),
              ::testing::IsSupersetOf({"bank.values", "bank.counts", "encoder.fc1.weight", "encoder.bn1.running_mean",
                                       "momentum_encoder.encoder.fc1.weight", "optimizer.0/0.exp_avg"}));
}

TEST(SkippedStep, DoesNotMoveTheSchedule) {
  const test::TempDir folder;
  Config config = streamed(folder, true);
  config.fp16.initial_scale_power = 60;
  config.scheduler.kind = SchedulerKind::kWarmup;
  config.scheduler.warmup_type = WarmupCurve::kLinear;
  config.scheduler.warmup_num_steps = 4;
  config.optimizer.lr = 0.4;
  config.steps = 3;
  (void)run(config);
  EXPECT_THAT(column<double>(config, "lr"), ::testing::ElementsAre(0.0, 0.1, 0.1)) << "the second step was skipped";
}

TEST(SkippedStep, IsAnErrorThatNamesTheTensorWhereTheScaleCannotFall) {
  const test::TempDir folder;
  Config config = streamed(folder, true);
  config.fp16.loss_scale = 0x1p60;  // Fixed.
  config.steps = 20;
  config.checkpoint = {.every = 2, .keep_last = 1};
  std::ostringstream out;
  EXPECT_THAT(message_of<Error>([&] { (void)train(config, {out}); }),
              AllOf(HasSubstr("5 steps in a row overflowed"), HasSubstr("the gradient of encoder.")));
  EXPECT_EQ(metrics_of(config).size(), 5U);
  EXPECT_EQ(list_checkpoints(checkpoint_root(config.out)).size(), 1U) << "the last checkpoint is kept";
}

TEST(Autocast, TrainsFloat32WeightsInEitherTypeAndAlikeOnDisk) {
  std::vector<std::string> hashes;
  for (const AutocastDtype dtype : {AutocastDtype::kBf16, AutocastDtype::kFp16}) {
    const test::TempDir folder;
    Config config = streamed(folder, true);
    config.fp16.enabled = false;
    config.torch_autocast = {.enabled = true, .dtype = dtype};
    const Summary on_disk = run(config);
    hashes.push_back(on_disk.weights_xxh3);
    EXPECT_EQ(column<double>(config, "loss_scale").front(), dtype == AutocastDtype::kFp16 ? 65536.0 : 1.0);
    const TensorFileReader file(checkpoint(config, 6) + "/rank_0.safetensors");
    EXPECT_EQ(file.find("encoder.fc1.weight")->dtype, at::kFloat);
    config.zero.offload_optimizer.device = config.offload.gradients = OffloadDevice::kNone;
    EXPECT_EQ(run(config).weights_xxh3, on_disk.weights_xxh3);
    config.torch_autocast.enabled = false;
    hashes.push_back(run(config).weights_xxh3);
  }
  EXPECT_NE(hashes[0], hashes[1]) << "autocast changes what is computed";
  EXPECT_NE(hashes[0], hashes[2]);
  EXPECT_EQ(hashes[1], hashes[3]);
}

TEST(SlowPrecision, IsNoMatterInFloat32) { EXPECT_EQ(slow_precision(Config()), std::nullopt); }

}  // namespace
}  // namespace spillway::app::mixed_precision_test

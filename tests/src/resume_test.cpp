// A run that is interrupted and resumed ends where it would have ended.
#include <spillway/app/training/resume.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/checkpoint/tensor_file.hpp>
#include <spillway/app/config/load_config.hpp>
#include <spillway/app/training/run_checkpoint.hpp>
#include <spillway/app/training/run_folder.hpp>
#include <spillway/app/training/train.hpp>
#include <spillway/offload/error.hpp>
#include <support/temp_dir.hpp>

#include "src/streamed_run.hpp"
#include "support/errors.hpp"

namespace spillway::app::resume_test {
namespace {

namespace fs = std::filesystem;
using test::streamed_config;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Summary run(const Config& config, std::optional<std::string> resume = {}, std::string* output = nullptr) {
  std::ostringstream out;
  TrainOptions options{out};
  options.resume = std::move(resume);
  const Summary summary = train(config, options);
  if (output != nullptr) *output = out.str();
  return summary;
}

fs::path checkpoint(const Config& config, const char* step) { return checkpoint_root(config.out) / step; }

std::size_t lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

/// The whole run, with all its checkpoints kept.
Config kept(const test::TempDir& folder) {
  Config config = streamed_config(folder);
  config.checkpoint = {.every = 5, .keep_last = 10};
  config.contrastive.bank.segment_rows = 48;  // Steps of 32 rows end in the middle of one, and the bank wraps there.
  return config;
}

TEST(Resume, EndsAtTheSameBitsFromEveryCheckpoint) {
  const test::TempDir folder;
  const Config config = kept(folder);
  const Summary whole = run(config);
  ASSERT_EQ(list_checkpoints(checkpoint_root(config.out)).size(), 5U);
  for (const char* step : {"step_0000000005", "step_0000000010", "step_0000000015", "step_0000000020"}) {
    Config again = config;
    again.out = folder / ("from_" + std::string(step));
    std::string output;
    const Summary resumed = run(again, checkpoint(config, step).string(), &output);
    EXPECT_EQ(resumed.weights_xxh3, whole.weights_xxh3) << step;
    EXPECT_EQ(resumed.steps, whole.steps);
    EXPECT_EQ(resumed.loss_first, whole.loss_first);
    EXPECT_EQ(resumed.loss_last, whole.loss_last);
    EXPECT_EQ(resumed.accuracy.untrained, whole.accuracy.untrained);
    EXPECT_EQ(resumed.accuracy.trained, whole.accuracy.trained);
    EXPECT_EQ(resumed.read_bytes, whole.read_bytes) << "what steps read depends on where the bank's rows came to lie";
    EXPECT_EQ(resumed.write_bytes, whole.write_bytes);
    EXPECT_EQ(resumed.steps_off_prediction, 0U) << output;
  }
}

/// Sets the values of tensors whose name begins with `prefix` to 0, and makes the manifest fit. @returns how many.
std::size_t blank(const fs::path& from, const std::string& prefix) {
  Manifest manifest = verify_checkpoint(from);
  const fs::path path = from / "rank_0.safetensors";
  std::vector<std::pair<TensorEntry, at::Tensor>> tensors;
  std::size_t blanked = 0;
  {
    const TensorFileReader reader(path);
    for (const TensorEntry& entry : reader.entries()) {
      at::Tensor values = reader.read(entry.name);
      if (entry.name.starts_with(prefix)) {
        values.zero_();
        ++blanked;
      }
      tensors.emplace_back(entry, values);
    }
  }
  fs::remove(path);
  std::vector<TensorEntry> entries;
  for (const auto& [entry, values] : tensors) entries.push_back(entry);
  TensorFileWriter writer(path, entries);
  for (const auto& [entry, values] : tensors) writer.append(values);
  const FileDigest digest = writer.finish();
  for (CheckpointFile& file : manifest.files) {
    if (file.name == "rank_0.safetensors") file.digest = digest;
  }
  CheckpointWriter rewritten(from.parent_path(), manifest.step);
  for (const CheckpointFile& file : manifest.files) fs::copy_file(from / file.name, rewritten.folder() / file.name);
  rewritten.commit(manifest);
  return blanked;
}

// The control: each part of a checkpoint is needed.
TEST(Resume, EndsElsewhereWithoutAnyOfItsParts) {
  const test::TempDir folder;
  const Config config = kept(folder);
  const Summary whole = run(config);
  const char* const step = "step_0000000010";
  for (const std::string part : {"encoder.", "momentum_encoder.", "optimizer.", "bank.values"}) {
    const fs::path root = folder / ("without_" + part);
    fs::create_directories(root / "checkpoints");
    fs::copy(checkpoint(config, step), root / "checkpoints" / step);
    ASSERT_GT(blank(root / "checkpoints" / step, part), 0U) << part;
    Config again = config;
    again.out = folder / ("from_" + part);
    EXPECT_NE(run(again, root.string()).weights_xxh3, whole.weights_xxh3) << part;
  }
}

TEST(Resume, GoesBetweenMemoryAndDisk) {
  const test::TempDir folder;
  const Config on_disk = kept(folder);
  Config in_memory = on_disk;
  in_memory.out = folder / "memory";
  in_memory.zero.offload_optimizer.device = OffloadDevice::kNone;
  in_memory.contrastive.bank.device = OffloadDevice::kNone;
  in_memory.offload.host_bytes = 1U << 30U;
  const std::string weights = run(in_memory).weights_xxh3;
  EXPECT_EQ(run(on_disk, checkpoint(in_memory, "step_0000000010").string()).weights_xxh3, weights);
  in_memory.out = folder / "back";
  EXPECT_EQ(run(in_memory, checkpoint(on_disk, "step_0000000015").string()).weights_xxh3, weights);
}

TEST(Resume, HoldsForEveryMethodAndOptimizer) {
  for (const Method method : {Method::kSimClr, Method::kByol, Method::kSimSiam}) {
    const test::TempDir folder;
    Config config = kept(folder);
    config.method = method;
    config.epochs = 0;
    config.steps = 8;
    config.offload.host_bytes = 5 * 36864;
    config.optimizer.kind = method == Method::kByol ? OptimizerKind::kSgd : OptimizerKind::kAdam;
    config.optimizer.momentum = 0.9;
    if (method == Method::kSimSiam) config.contrastive.projection_head = HeadKind::kBatchNormOutput;
    const std::string weights = run(config).weights_xxh3;
    const std::string from = checkpoint(config, "step_0000000005").string();
    config.out = folder / "again";
    EXPECT_EQ(run(config, from).weights_xxh3, weights);
  }
}

TEST(Resume, HoldsForWhatChangesInTheCourseOfARun) {
  const test::TempDir folder;
  Config config = kept(folder);
  config.contrastive.queue_schedule = {.first_rows = 64, .steps = 16};
  config.contrastive.momentum_schedule = MomentumSchedule::kCosine;
  config.contrastive.learnable_temperature = true;
  config.contrastive.exclude_same_class = true;
  config.scheduler.kind = SchedulerKind::kWarmupDecay;
  config.offload.host_bytes += 1U << 20U;
  const Summary whole = run(config);
  for (const char* step : {"step_0000000005", "step_0000000015"}) {
    Config again = config;
    again.out = folder / step;
    const Summary resumed = run(again, checkpoint(config, step).string());
    EXPECT_EQ(resumed.weights_xxh3, whole.weights_xxh3) << step;
    EXPECT_EQ(resumed.steps_off_prediction, 0U) << step;
  }
}

TEST(Resume, GoesOnInItsOwnFolder) {
  const test::TempDir folder;
  Config config = kept(folder);
  config.checkpoint.keep_last = 1;
  std::string output;
  const Summary whole = run(config, "auto", &output);
  EXPECT_THAT(output, HasSubstr("starts anew"));
  ASSERT_EQ(list_checkpoints(checkpoint_root(config.out)).size(), 1U);

  const std::string text = message_of<Error>([&] { (void)run(config, folder / "nowhere"); });
  EXPECT_THAT(text, HasSubstr("nowhere"));

  const Summary again = run(config, "auto", &output);
  EXPECT_THAT(output, HasSubstr("nothing is left to do"));
  EXPECT_EQ(to_json(again), to_json(whole));
}

TEST(Resume, CutsMetricsBackToTheCheckpoint) {
  const test::TempDir folder;
  const Config config = kept(folder);
  (void)run(config);
  for (const char* step : {"step_0000000015", "step_0000000020", "step_0000000021"}) {
    fs::remove_all(checkpoint(config, step));
  }
  std::string output;
  (void)run(config, "auto", &output);
  EXPECT_THAT(output, HasSubstr("after 10 steps"));
  EXPECT_EQ(lines_of(fs::path(config.out) / "metrics.jsonl"), 21U);
}

TEST(Resume, TakesTheOneBeforeWhereTheNewestIsDamaged) {
  const test::TempDir folder;
  const Config config = kept(folder);
  const Summary whole = run(config);
  const fs::path file = checkpoint(config, "step_0000000021") / "rank_0.safetensors";
  std::fstream(file, std::ios::in | std::ios::out).seekp(static_cast<std::streamoff>(fs::file_size(file) / 2)).put('x');
  std::string output;
  EXPECT_EQ(run(config, "auto", &output).weights_xxh3, whole.weights_xxh3);
  EXPECT_THAT(output, HasSubstr("skipped a checkpoint"));
  EXPECT_THAT(output, HasSubstr("after 20 steps"));
}

TEST(Resume, KeepsWhatItWritesBehindADamagedCheckpoint) {
  const test::TempDir folder;
  Config config = kept(folder);
  config.checkpoint.keep_last = 1;
  (void)run(config);  // 21 steps.
  fs::rename(checkpoint(config, "step_0000000021"), checkpoint(config, "step_0000000099"));
  fs::resize_file(checkpoint(config, "step_0000000099") / "rank_0.safetensors", 100);
  (void)run(config, "auto");
  EXPECT_TRUE(fs::exists(checkpoint(config, "step_0000000021"))) << "the damaged one took its place";
}

TEST(Resume, LetsOnlyOneRunIntoAFolder) {
  const test::TempDir folder;
  const Config config = kept(folder);
  {
    const RunFolder other(config.out);
    EXPECT_THAT(message_of<Error>([&] { (void)run(config); }), HasSubstr("another run"));
    EXPECT_FALSE(fs::exists(fs::path(config.out) / "config.json"));
  }
  (void)run(config);
}

TEST(Resume, PutsTheCheckpointsOfAnEarlierRunAside) {
  const test::TempDir folder;
  Config config = kept(folder);
  (void)run(config);
  config.seed += 1;
  std::string output;
  (void)run(config, {}, &output);
  EXPECT_THAT(output, HasSubstr("checkpoints.1"));
  EXPECT_EQ(list_checkpoints(fs::path(config.out) / "checkpoints.1").size(), 5U);
  EXPECT_EQ(list_checkpoints(checkpoint_root(config.out)).size(), 5U);
}

TEST(Resume, NamesEveryDifferenceThatWouldChangeTheResult) {
  const test::TempDir folder;
  const Config config = kept(folder);
  (void)run(config);
  Config other = config;
  other.seed += 1;
  other.contrastive.temperature = 0.5;
  other.offload.host_bytes += 4096;  // Changes none.
  const std::string text = message_of<ConfigError>([&] { (void)run(other, "auto"); });
  EXPECT_THAT(text, HasSubstr("seed: 0 there, 1 here"));
  std::ifstream file(fs::path(config.out) / "config.json");
  EXPECT_EQ(parse_json(std::string(std::istreambuf_iterator<char>(file), {}), "config.json"), to_json(config))
      << "a run that was refused wrote its configuration over the other's";
  EXPECT_THAT(text, HasSubstr("contrastive.temperature: 0.2 there, 0.5 here"));
  EXPECT_THAT(differences_of_results(to_json(config), to_json(other)),
              ElementsAre(HasSubstr("seed"), HasSubstr("temp")));
  EXPECT_THAT(differences_of_results(to_json(config), to_json(config)), IsEmpty());
  other = config;
  other.offload.state_dtype = StateDtype::kInt8;  // Its codes can't be read as float32.
  EXPECT_THAT(differences_of_results(to_json(config), to_json(other)),
              ElementsAre("offload.state_dtype: \"fp32\" there, \"int8\" here"));
}

TEST(Resume, TakesAKeyThatIsNewerThanTheCheckpointForItsDefault) {
  const Json old = parse_json(R"({"seed": 0, "offload": {"host_bytes": 5}})", "old");
  Config config;
  EXPECT_THAT(differences_of_results(old, to_json(config)), IsEmpty());
  config.offload.state_dtype = StateDtype::kBf16;
  EXPECT_THAT(differences_of_results(old, to_json(config)),
              ElementsAre("offload.state_dtype: nothing there, \"bf16\" here"));
}

TEST(Resume, GoesOnWithoutACheckpointUntilThreeInARowFailed) {
  const test::TempDir folder;
  Config config = kept(folder);
  fs::create_directory(config.out);
  std::ofstream(checkpoint_root(config.out)) << "a file where the folder should be";
  config.checkpoint.every = 10;  // 10, 20 and the end: the third failure.
  EXPECT_THROW((void)run(config), Error);
  config.checkpoint.every = 20;
  std::string output;
  (void)run(config, {}, &output);
  EXPECT_THAT(output, HasSubstr("no checkpoint after step 20"));
}

}  // namespace
}  // namespace spillway::app::resume_test

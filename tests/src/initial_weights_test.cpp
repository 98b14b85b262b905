// Runs that start from the weights of another one.
#include <filesystem>
#include <sstream>
#include <string>

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/checkpoint/tensor_file.hpp>
#include <spillway/app/training/resume.hpp>
#include <spillway/app/training/train.hpp>
#include <spillway/offload/error.hpp>
#include <support/temp_dir.hpp>

#include "streamed_run.hpp"
#include "support/errors.hpp"

namespace spillway::app::initial_weights_test {
namespace {

using ::testing::HasSubstr;

Summary run_from(const Config& config, const std::string& init, InitialPart part = InitialPart::kWeights) {
  std::ostringstream out;
  TrainOptions options{out};
  if (!init.empty()) options.init = init;
  options.init_part = part;
  return train(config, options);
}

/// A run of the same network that leaves its weights as they are.
Config still(const Config& config, const std::string& out) {
  Config same = config;
  same.out = out;
  same.epochs = 0;
  same.steps = 1;
  same.optimizer.lr = 0.0;
  same.optimizer.weight_decay = 0.0;
  return same;
}

/// The newest checkpoint's tensors whose names begin with `prefix` are the same in both runs.
bool same_tensors(const Config& a, const Config& b, const std::string& prefix) {
  const TensorFileReader file(find_checkpoint(a.out).found.path / "rank_0.safetensors");
  const TensorFileReader other(find_checkpoint(b.out).found.path / "rank_0.safetensors");
  std::size_t compared = 0;
  for (const TensorEntry& entry : file.entries()) {
    if (!entry.name.starts_with(prefix) || entry.name.find("running") != entry.name.npos ||
        entry.name.find("num_batches") != entry.name.npos) {
      continue;
    }
    ++compared;
    if (!at::equal(file.read(entry.name), other.read(entry.name))) return false;
  }
  EXPECT_GT(compared, 0U) << prefix;
  return true;
}

class InitialWeights : public ::testing::Test {
 protected:
  InitialWeights() { whole_ = run_from(config_, ""); }

  test::TempDir folder_;
  Config config_ = streamed_config(folder_);
  Summary whole_;
};

TEST_F(InitialWeights, AreThoseOfTheCheckpointAtStepZero) {
  const Config same = still(config_, folder_ / "still");
  const Summary started = run_from(same, config_.out);
  EXPECT_EQ(started.steps, 1U);
  EXPECT_EQ(started.weights_xxh3, whole_.weights_xxh3);
  EXPECT_EQ(started.accuracy.untrained, whole_.accuracy.trained) << "running statistics are of the checkpoint too";
  EXPECT_FALSE(same_tensors(same, config_, "optimizer.")) << "the optimizer begins anew";
  EXPECT_NE(run_from(same, "").weights_xxh3, whole_.weights_xxh3) << "the control";
}

TEST_F(InitialWeights, OfTheEncoderAloneGoWithAnotherHeadAndMethod) {
  Config other = still(config_, folder_ / "other");
  other.method = Method::kSimClr;
  other.contrastive.projection_dim += 8;
  EXPECT_THAT(message_of<Error>([&] { (void)run_from(other, config_.out); }), HasSubstr("--init-part encoder"));
  (void)run_from(other, config_.out, InitialPart::kEncoder);
  EXPECT_TRUE(same_tensors(other, config_, "encoder."));
}

TEST_F(InitialWeights, NameWhatIsNoCheckpoint) {
  EXPECT_THAT(message_of<Error>([&] { (void)run_from(still(config_, folder_ / "x"), folder_ / "nowhere"); }),
              HasSubstr("nowhere"));
}

}  // namespace
}  // namespace spillway::app::initial_weights_test

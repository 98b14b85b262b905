// Configurations as people write them for DeepSpeed, with nothing changed but the folder on NVMe and, so that they take
// no time, what is trained and how long.
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/cli/train_command.hpp>
#include <spillway/app/training/train.hpp>
#include <support/temp_dir.hpp>

namespace spillway::app::deepspeed_configs_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string shipped(const std::string& name) { return (std::filesystem::path(SPILLWAY_CONFIGS) / name).string(); }

class DeepSpeedConfigs : public ::testing::Test {
 protected:
  /// The command line of a run of two steps.
  [[nodiscard]] std::vector<std::string> command(const std::string& config, std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"train", "--config", config, "--data", "synthetic",    "--encoder",
                                          "mlp",   "--steps",  "2",    "--out",  folder_ / "run"};
    for (const char* small : {"data.synthetic.side=8", "data.synthetic.images=300", "encoder.hidden=[64,64,64,64,64]",
                              "contrastive.projection_hidden_dim=64", "contrastive.queue_size=64",
                              "contrastive.bank.segment_rows=16", "evaluation.draws=1"}) {
      arguments.insert(arguments.end(), {"--set", small});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  /// Runs one; then what it wrote, which has to come to the same.
  ResolvedConfig run_twice(const std::string& name, const std::vector<std::string>& more = {}) {
    ResolvedConfig resolved = resolve(std::get<TrainFlags>(parse_command_line(command(shipped(name), more))));
    summary_ = train(resolved.config, {out_});
    EXPECT_EQ(summary_.steps, 2U);
    TrainFlags again;
    again.config = folder_ / "run/config.json";
    const ResolvedConfig written = resolve(again);
    EXPECT_EQ(written.config, resolved.config);
    EXPECT_THAT(written.warnings, IsEmpty());
    EXPECT_EQ(train(written.config, {out_}).weights_xxh3, summary_.weights_xxh3);
    return resolved;
  }

  test::TempDir folder_;
  std::ostringstream out_;
  Summary summary_;
};

TEST_F(DeepSpeedConfigs, OfInfinityOnNvme) {
  const std::string disk = folder_.path().string();
  const ResolvedConfig resolved = run_twice("infinity_nvme.json", {"--nvme-path", disk, "--host-budget", "320KiB"});
  const Config& config = resolved.config;
  EXPECT_EQ(config.train_batch_size, 4U);
  EXPECT_EQ(config.zero.stage, 2U);
  EXPECT_EQ(config.zero.sub_group_size, 100'000'000U);
  EXPECT_EQ(config.zero.offload_optimizer.device, OffloadDevice::kNvme);
  EXPECT_THAT(config.offload.nvme_paths, ElementsAre(disk));
  EXPECT_EQ(config.aio.queue_depth, 16U);
  EXPECT_EQ(config.aio.intra_op_parallelism, 2U);
  EXPECT_EQ(config.fp16.loss_scale, 1024.0);
  EXPECT_TRUE(config.fp16.enabled);
  EXPECT_THAT(resolved.warnings, ElementsAre(AllOf(HasSubstr("stage3_param_persitance_threshold: unknown key"),
                                                   HasSubstr("mean stage3_param_persistence_threshold?")),
                                             AllOf(HasSubstr("3 runs as 2"), HasSubstr("offload_param.device"))));
  EXPECT_GT(summary_.write_bytes, 0U);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("time per step: views"), HasSubstr("striped")));
}

TEST_F(DeepSpeedConfigs, OfStageTwoWithAutoEverywhere) {
  const ResolvedConfig resolved = run_twice("zero2_auto.json");
  const Config& config = resolved.config;
  EXPECT_THAT(resolved.warnings, IsEmpty());
  EXPECT_EQ(config.train_batch_size, 128U);
  EXPECT_EQ(config.gradient_clipping, 1.0);
  EXPECT_EQ(config.optimizer, OptimizerConfig());
  EXPECT_EQ(config.scheduler.kind, SchedulerKind::kWarmup);
  EXPECT_EQ(config.zero.reduce_bucket_size, 200'000'000U);
  EXPECT_EQ(config.zero.offload_optimizer.device, OffloadDevice::kCpu);
  EXPECT_TRUE(config.zero.offload_optimizer.pin_memory);
}

TEST_F(DeepSpeedConfigs, OfStageTwoInTheOldStyle) {
  const ResolvedConfig resolved = run_twice("zero2_old_style.json");
  const Config& config = resolved.config;
  EXPECT_THAT(resolved.warnings, ElementsAre(HasSubstr("fp16.fp16_master_weights_and_grads")));
  EXPECT_EQ(config.micro_batch_size_per_gpu, 4U);
  EXPECT_THAT(config.optimizer.betas, ElementsAre(0.8, 0.999));
  EXPECT_TRUE(config.optimizer.decoupled_decay());
  EXPECT_EQ(config.scheduler.warmup_max_lr, 0.001);
  EXPECT_EQ(config.zero.offload_optimizer.device, OffloadDevice::kCpu);
  EXPECT_TRUE(config.fp16.enabled);
  EXPECT_EQ(config.fp16.initial_scale_power, 15U);
}

}  // namespace
}  // namespace spillway::app::deepspeed_configs_test

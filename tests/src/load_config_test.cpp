#include <spillway/app/config/load_config.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>
#include <support/temp_dir.hpp>

#include "support/errors.hpp"

namespace spillway::app::load_config_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ResolvedConfig load(std::string_view text, const std::vector<std::string>& assignments = {}, std::uint64_t ranks = 1) {
  std::vector<Override> overrides;
  for (const std::string& assignment : assignments) {
    overrides.push_back(parse_override(assignment));
  }
  return load_config({.text = text, .overrides = overrides, .world_size = ranks});
}

/// A configuration in which nothing but the kinds that exclude one another is left at its default.
constexpr std::string_view kEverything = R"({
  "method": "moco", "seed": 7, "steps": 9, "out": "runs/x", "deterministic": true, "train_batch_size": 96,
  "gradient_accumulation_steps": 3, "dataloader_drop_last": true, "steps_per_print": 4, "gradient_clipping": 0.5,
  "wall_clock_breakdown": true, "memory_breakdown": true, "dump_state": true,
  "optimizer": {"type": "Adam", "params": {"lr": 0.01, "weight_decay": 0.1, "betas": [0.8, 0.99], "eps": 1e-6,
                "amsgrad": true, "adam_w_mode": false}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 90, "warmup_num_steps": "auto",
                "warmup_type": "linear", "warmup_min_lr": 1e-5, "warmup_max_lr": "auto"}},
  "fp16": {"enabled": "auto", "loss_scale": 1024, "initial_scale_power": 15,
           "loss_scale_window": 500, "hysteresis": 3, "consecutive_hysteresis": true, "min_loss_scale": 2},
  "bf16": {"enabled": true, "check_grad_overflow": false, "bf16_optimizer_states": true},
  "torch_autocast": {"enabled": "auto", "dtype": "float16"},
  "zero_optimization": {"stage": 1, "sub_group_size": 2e8, "reduce_bucket_size": 1e6,
                        "offload_optimizer": {"device": "nvme", "buffer_count": 5, "pin_memory": true, "ratio": 0.5}},
  "aio": {"block_size": 524288, "queue_depth": 16, "intra_op_parallelism": 2, "engine": "threads"},
  "contrastive": {"temperature": 0.07, "learnable_temperature": true, "queue_size": 4096, "momentum": 0.999,
                  "queue_schedule": {"first_rows": 512, "steps": 7, "growth": "geometric"},
                  "exclude_same_class": true, "momentum_schedule": "cosine", "projection_head": "batch_norm",
                  "projection_hidden_dim": 128, "projection_dim": 32, "predictor_hidden_dim": 16,
                  "batch_norm_groups": 2,
                  "bank": {"dtype": "bf16", "segment_rows": 512, "device": "nvme", "host_bytes": 65536}},
  "data": {"source": "digits", "train_fraction": 0.7, "image_size": 96, "grey": true, "check": false, "damaged_max": 3,
           "workers": 5, "prefetch": 4, "recipe": "byol",
           "view": {"crop_scale_min": 0.3, "crop_scale_max": 0.9, "flip_probability": 0.1, "jitter_probability": 0.2,
                    "brightness": 0.3, "contrast": 0.4, "saturation": 0.6, "hue": 0.05, "grayscale_probability": 0.7,
                    "blur_probability": 0.8, "blur_sigma_min": 0.2, "blur_sigma_max": 1.5, "solarize_probability": 0.9,
                    "solarize_threshold": 0.6},
           "augment": {"enabled": false, "rotation_degrees": 1, "translate": 0.2, "scale_min": 0.5, "scale_max": 2.5,
                       "shear_degrees": 3, "contrast": 0.4, "brightness": 0.6, "noise": 0.7},
           "synthetic": {"images": 20, "classes": 2, "side": 8}},
  "encoder": {"name": "mlp", "channels": [4, 8], "hidden": [32, 16], "float32_layers": "fc2,bn"},
  "offload": {"host_bytes": 1e9, "disk_bytes": 2000000000, "gradients": "cpu", "state_dtype": "bf16",
              "nvme_path": "fast/a,fast/b"},
  "evaluation": {"labels_per_class": 3, "draws": 2, "l2": 0.5}, "ranks": {"timeout_s": 9}})";

TEST(LoadConfig, GivesADefaultToEverything) {
  const ResolvedConfig resolved = load("{}");
  Config wanted;
  wanted.out = "runs/moco";
  EXPECT_EQ(resolved.config, wanted);
  EXPECT_THAT(resolved.warnings, IsEmpty());
}

TEST(LoadConfig, StartsFromTheDefaultsOfTheMethod) {
  const Config byol = load(R"({"method": "BYOL", "contrastive": {"momentum": 0.5}})").config;
  EXPECT_EQ(byol.method, Method::kByol);
  EXPECT_EQ(byol.out, "runs/byol");
  EXPECT_EQ(byol.contrastive.projection_head, HeadKind::kBatchNorm);
  EXPECT_EQ(byol.contrastive.batch_norm_groups, 1U);
  EXPECT_EQ(byol.contrastive.momentum, 0.5);
  EXPECT_EQ(load(R"({"method": "simclr"})").config.contrastive.temperature, 0.5);
  EXPECT_EQ(load(R"({"method": "supcon", "contrastive": {"temperature": 0.3}})").config.contrastive.temperature, 0.3);
  EXPECT_EQ(load(R"({"method": "simsiam"})").config.contrastive.projection_head, HeadKind::kBatchNormOutput);
}

TEST(LoadConfig, SaysOfABankThatTheMethodHasNone) {
  constexpr auto kBank = R"({"method": "simclr", "contrastive": {"queue_size": 9, "bank": {"device": "nvme"}}})";
  const ResolvedConfig resolved = load(kBank);
  EXPECT_THAT(resolved.warnings,
              ElementsAre("without effect, as simclr has no bank: contrastive.queue_size, contrastive.bank"));
  EXPECT_THAT(resolved.config.offload.nvme_paths, IsEmpty());
  const ResolvedConfig again = load(to_json(resolved.config).dump());
  EXPECT_EQ(again.config, resolved.config);
  EXPECT_THAT(again.warnings, IsEmpty()) << "what has no effect is not written";
  EXPECT_THAT(load(R"({"contrastive": {"queue_size": 9}})").warnings, IsEmpty());
}

TEST(LoadConfig, SaysOfOtherKeysThatTheMethodHasNothingForThem) {
  const auto warnings = [](const char* method, const char* key, const char* value) {
    const std::string text =
        R"({"method": ")" + std::string(method) + R"(", "contrastive": {")" + key + "\": " + value + "}}";
    const ResolvedConfig resolved = load(text);
    const ResolvedConfig again = load(to_json(resolved.config).dump());
    EXPECT_EQ(again.config, resolved.config) << text;
    EXPECT_THAT(again.warnings, IsEmpty()) << text;
    return resolved.warnings;
  };
  EXPECT_THAT(warnings("moco", "accumulation", "\"cached\""),
              ElementsAre("without effect, as moco has no negatives in its batch: contrastive.accumulation"));
  EXPECT_THAT(warnings("simclr", "accumulation", "\"cached\""), IsEmpty());
  EXPECT_THAT(warnings("byol", "learnable_temperature", "true"), ElementsAre(HasSubstr("no temperature")));
  EXPECT_THAT(warnings("supcon", "learnable_temperature", "true"), IsEmpty());
  EXPECT_THAT(warnings("simsiam", "momentum_schedule", "\"cosine\""), ElementsAre(HasSubstr("no momentum encoder")));
  EXPECT_THAT(warnings("byol", "momentum_schedule", "\"cosine\""), IsEmpty());
  EXPECT_THAT(warnings("simclr", "exclude_same_class", "true"), ElementsAre(HasSubstr("no bank")));
}

TEST(LoadConfig, ReadsEveryKey) {
  const Config config = load(kEverything).config;
  EXPECT_EQ(config.steps, 9U);
  EXPECT_EQ(config.epochs, 0U);
  EXPECT_EQ(config.micro_batch_size_per_gpu, 32U);
  EXPECT_EQ(config.optimizer.kind, OptimizerKind::kAdam);
  EXPECT_FALSE(config.optimizer.decoupled_decay());
  EXPECT_EQ(config.zero.sub_group_size, 200'000'000U);
  EXPECT_EQ(config.aio.engine, EngineChoice::kThreads);
  EXPECT_EQ(config.contrastive.bank.dtype, BankDtype::kBf16);
  EXPECT_EQ(config.encoder.kind, EncoderKind::kMlp);
  EXPECT_THAT(config.encoder.hidden, ElementsAre(32U, 16U));
  EXPECT_THAT(config.offload.nvme_paths, ElementsAre("fast/a", "fast/b"));
  EXPECT_EQ(config.offload.host_bytes, 1'000'000'000U);
  EXPECT_EQ(config.offload.gradients, OffloadDevice::kCpu);
}

TEST(LoadConfig, TakesFoldersAsAListOrAsOneTextWithCommas) {
  EXPECT_THAT(load(R"({"offload": {"nvme_path": "a,,b,"}})").config.offload.nvme_paths, ElementsAre("a", "b"));
  EXPECT_THAT(load(R"({"offload": {"nvme_path": ["a,b", "c"]}})").config.offload.nvme_paths, ElementsAre("a,b", "c"));
  EXPECT_THAT(load("{}", {"offload.nvme_path=a,b"}).config.offload.nvme_paths, ElementsAre("a", "b"));
}

TEST(LoadConfig, GivesBackEveryKeyItWroteWithoutAWarning) {
  // What the text sets differs from the default in every key, so that one that is not written would show.
  for (const std::string_view text :
       {std::string_view("{}"), kEverything,
        std::string_view(R"({"epochs": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9,
                             "nesterov": true, "weight_decay": 1e-4}}, "scheduler": {"type": "WarmupLR"}})"),
        std::string_view(R"({"optimizer": {"type": "LARS", "params": {"lr": 0.1, "momentum": 0.8, "nesterov": true,
                             "weight_decay": 1e-4, "trust_coefficient": 0.01}}})"),
        std::string_view(R"({"optimizer": {"type": "Adagrad", "params": {"lr_decay": 0.1, "weight_decay": 0.2,
                             "initial_accumulator_value": 0.3, "eps": 0.4}}, "scheduler": {"type": "WarmupCosineLR",
                             "params": {"warmup_num_steps": 3, "warmup_min_ratio": 0.1, "cos_min_ratio": 0.2}}})"),
        std::string_view(R"({"optimizer": {"type": "RMSprop", "params": {"alpha": 0.9, "centered": true,
                             "momentum": 0.5}}, "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1,
                             "cycle_max_lr": 0.2, "decay_lr_rate": 0.3, "cycle_first_step_size": 4,
                             "cycle_second_step_size": 5, "cycle_first_stair_count": 2, "cycle_second_stair_count": 1,
                             "decay_step_size": 6, "cycle_momentum": false, "cycle_min_mom": 0.1, "cycle_max_mom": 0.2,
                             "decay_mom_rate": 0.3}}})")}) {
    const Config config = load(text).config;
    const std::string written = to_json(config).dump(2);
    const ResolvedConfig again = load(written);
    EXPECT_EQ(again.config, config) << written;
    EXPECT_THAT(again.warnings, IsEmpty());
  }
}

TEST(LoadConfig, RepeatsAWrittenRunWithItsGlobalBatchOnOtherRanks) {
  const std::string written = to_json(load(R"({"train_batch_size": 96})").config).dump();
  EXPECT_EQ(load(written, {}, 3).config.micro_batch_size_per_gpu, 32U);
}

TEST(LoadConfig, LetsAnOverrideGoBeforeTheFileAndALaterOneBeforeAnEarlier) {
  const Config config = load(R"({"optimizer": {"params": {"lr": 1}}, "seed": 1})",
                             {"optimizer.params.lr=2", "optimizer.params.lr=3e-1", "contrastive.bank.dtype=fp32"})
                            .config;
  EXPECT_EQ(config.optimizer.lr, 0.3);
  EXPECT_EQ(config.seed, 1U);
  EXPECT_EQ(config.contrastive.bank.dtype, BankDtype::kFp32);
}

TEST(LoadConfig, LetsAnOverriddenLengthReplaceTheOtherWayToSayIt) {
  EXPECT_EQ(load(R"({"epochs": 3})", {"steps=10"}).config.epochs, 0U);
  EXPECT_EQ(load(R"({"steps": 3})", {"epochs=2"}).config.steps, 0U);
}

TEST(LoadConfig, DerivesBatchesWithTheNumberOfRanks) {
  const Config config = load(R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": "auto",
                                 "gradient_accumulation_steps": 2})",
                             {}, 3)
                            .config;
  EXPECT_EQ(config.micro_batch_size_per_gpu, 4U);
}

TEST(LoadConfig, TakesTheDefaultForAuto) {
  const Config config = load(R"({"gradient_clipping": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto",
      "betas": "auto", "eps": "auto", "weight_decay": "auto"}}, "fp16": {"enabled": "auto"}})")
                            .config;
  EXPECT_EQ(config.gradient_clipping, 1.0);
  EXPECT_EQ(config.optimizer, OptimizerConfig());
}

TEST(LoadConfig, RunsStage3As2WithOneWarningForAllItsKeys) {
  const ResolvedConfig resolved = load(R"({"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e9,
      "stage3_prefetch_bucket_size": 5e7, "offload_param": {"device": "cpu"}}})");
  EXPECT_EQ(resolved.config.zero.stage, 2U);
  EXPECT_THAT(resolved.warnings,
              ElementsAre(AllOf(HasSubstr("3 runs as 2"), HasSubstr("stage3_max_live_parameters"),
                                HasSubstr("stage3_prefetch_bucket_size"), HasSubstr("offload_param.device"))));
}

TEST(LoadConfig, NamesAllKeysWithoutEffectInOneWarning) {
  const ResolvedConfig resolved = load(R"({"zero_optimization": {"zero_quantized_weights": true},
      "wandb": {"team": "x"}, "aio": {"use_gds": true}, "tensorboard": {"enabled": true, "job_name": "x"},
      "optimizer": {"params": {"momentum": 0.9}}, "scheduler": {"type": "WarmupLR", "params": {"cos_min_ratio": 0}}})");
  EXPECT_THAT(resolved.warnings,
              ElementsAre(AllOf(HasSubstr("without effect"), HasSubstr("zero_optimization.zero_quantized_weights"),
                                HasSubstr("wandb"), HasSubstr("aio.use_gds"), HasSubstr("tensorboard.enabled"),
                                HasSubstr("optimizer.params.momentum"), HasSubstr("scheduler.params.cos_min_ratio"),
                                Not(HasSubstr("job_name")))));
}

TEST(LoadConfig, SaysNothingAboutKeysThatAskForWhatHappensAnyway) {
  EXPECT_THAT(load(R"({"zero_optimization": {"overlap_comm": true, "contiguous_gradients": true, "reduce_scatter": true,
      "allgather_bucket_size": 2e8, "offload_optimizer": {"device": "cpu", "pipeline_read": true, "fast_init": false}},
      "activation_checkpointing": {"partition_activations": false}, "zero_allow_untested_optimizer": true, "flops_profiler": {"enabled": false},
      "fp16": {"enabled": false, "loss_scale": 0}, "scheduler": null, "aio": {"thread_count": 1, "use_gds": false}})")
                  .warnings,
              IsEmpty());
}

TEST(LoadConfig, SaysThatGradientsWhichAreTakenAwayAreShardedInStageZeroToo) {
  constexpr std::string_view kText = R"({"offload": {"gradients": "cpu"}})";
  EXPECT_THAT(load(kText, {}, 1).warnings, IsEmpty());
  EXPECT_FALSE(load(kText, {}, 1).config.shards(1));
  EXPECT_THAT(load(kText, {}, 2).warnings, ElementsAre(HasSubstr("zero_optimization.stage: 0 runs as 2")));
  EXPECT_TRUE(load(kText, {}, 2).config.shards(2));
  for (const char* stage : {"zero_optimization.stage=1", "zero_optimization.stage=2"}) {
    EXPECT_THAT(load("{}", {stage}, 2).warnings, IsEmpty());
    EXPECT_TRUE(load("{}", {stage}, 2).config.shards(2));
  }
  EXPECT_FALSE(load("{}", {}, 2).config.shards(2));
}

TEST(LoadConfig, WarnsOfAnUnknownKeyOfDeepSpeedsAndNamesTheNearest) {
  const ResolvedConfig resolved = load(R"({"zero_optimization": {"stage3_param_persitance_threshold": 1e5, "stag": 2},
                                           "gradient_cliping": 1, "quite_unheard_of": 1})");
  EXPECT_THAT(resolved.warnings,
              ElementsAre(AllOf(HasSubstr("zero_optimization.stage3_param_persitance_threshold: unknown"),
                                HasSubstr("stage3_param_persistence_threshold?")),
                          HasSubstr("did you mean stage?"), HasSubstr("did you mean gradient_clipping?"),
                          AllOf(HasSubstr("quite_unheard_of"), Not(HasSubstr("mean")))));
}

TEST(LoadConfig, ReadsOldSpellings) {
  const ResolvedConfig resolved = load(R"({"zero_optimization": {"stage": 2, "cpu_offload": true,
      "cpu_offload_use_pin_memory": false}, "optimizer": {"params": {"max_grad_norm": 2.0}}})");
  EXPECT_EQ(resolved.config.zero.offload_optimizer.device, OffloadDevice::kCpu);
  EXPECT_EQ(resolved.config.gradient_clipping, 2.0);
  EXPECT_THAT(resolved.warnings, IsEmpty());
}

TEST(LoadConfig, TakesTheOptimizersPathForAllUnlessOursIsGiven) {
  constexpr std::string_view kText =
      R"({"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": "a"}}})";
  EXPECT_THAT(load(kText).config.offload.nvme_paths, ElementsAre("a"));
  const ResolvedConfig overridden = load(kText, {"offload.nvme_path=b"});
  EXPECT_THAT(overridden.config.offload.nvme_paths, ElementsAre("b"));
  EXPECT_THAT(overridden.warnings, IsEmpty()) << "a flag goes before the file";
  const ResolvedConfig both = load(R"({"offload": {"nvme_path": "b"},
      "zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": "a"}}})");
  EXPECT_THAT(both.config.offload.nvme_paths, ElementsAre("b"));
  EXPECT_THAT(both.warnings, ElementsAre(HasSubstr("nvme_path is passed over")));
}

TEST(LoadConfig, SwapsToTheRunsFolderWhereNoOtherIsNamed) {
  EXPECT_THAT(load(R"({"out": "o", "contrastive": {"bank": {"device": "nvme"}}})").config.offload.nvme_paths,
              ElementsAre("o"));
  EXPECT_THAT(load(R"({"out": "o"})").config.offload.nvme_paths, IsEmpty());
}

TEST(LoadConfig, TreatsTheTypeOfAnOptimizerAsDeepSpeedDoes) {
  EXPECT_EQ(load(R"({"optimizer": {"type": "adamw"}})").config.optimizer.kind, OptimizerKind::kAdamW);
  const OptimizerConfig adam = load(R"({"optimizer": {"type": "Adam"}})").config.optimizer;
  EXPECT_TRUE(adam.decoupled_decay()) << "adam_w_mode is on unless switched off";
}

TEST(LoadConfig, GivesEachOptimizerAndSchedulerItsOwnDefaults) {
  EXPECT_EQ(load(R"({"optimizer": {"type": "SGD"}})").config.optimizer.lr, 1e-3);
  const OptimizerConfig adagrad =
      load(R"({"optimizer": {"type": "adagrad", "params": {"lr": "auto"}}})").config.optimizer;
  EXPECT_EQ(adagrad.lr, 1e-2);
  EXPECT_EQ(adagrad.eps, 1e-10);
  const OptimizerConfig rmsprop = load(R"({"optimizer": {"type": "RMSProp"}})").config.optimizer;
  EXPECT_EQ(rmsprop.kind, OptimizerKind::kRmsprop);
  EXPECT_EQ(rmsprop.lr, 1e-2);
  EXPECT_EQ(rmsprop.eps, 1e-8);
  const SchedulerConfig warmup = load(R"({"scheduler": {"type": "WarmupLR"}})").config.scheduler;
  EXPECT_EQ(warmup.warmup_num_steps, 1000U);
  EXPECT_EQ(warmup.warmup_max_lr, std::nullopt);
  EXPECT_EQ(load(R"({"scheduler": {"type": "WarmupDecayLR"}})").config.scheduler.warmup_max_lr, 1e-3);
}

TEST(LoadConfig, LeavesOpenWhatASchedulerIsToDecideWithTheRun) {
  const SchedulerConfig config = load(R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto",
      "warmup_num_steps": "auto", "warmup_max_lr": "auto", "warmup_min_lr": "auto"}}})")
                                     .config.scheduler;
  EXPECT_EQ(config.total_num_steps, std::nullopt);
  EXPECT_EQ(config.warmup_num_steps, std::nullopt);
  EXPECT_EQ(config.warmup_max_lr, std::nullopt);
  EXPECT_EQ(config.warmup_min_lr, 0.0);
}

TEST(LoadConfig, SaysThatACycleHasNoMomentumToMoveWhereThereAreNoBetas) {
  constexpr std::string_view kCycle = R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1,
                                         "cycle_max_lr": 0.2}}})";
  const ResolvedConfig sgd = load(R"({"optimizer": {"type": "SGD"}, )" + std::string(kCycle));
  EXPECT_THAT(sgd.warnings, ElementsAre(HasSubstr("scheduler.params.cycle_momentum")));
  EXPECT_FALSE(sgd.config.scheduler.cycle_momentum);
  EXPECT_THAT(load("{" + std::string(kCycle)).warnings, IsEmpty());
}

TEST(LoadConfig, TakesAPrecisionAndNamesTheKeysOfItThatHaveNoEffect) {
  for (const std::string key : {"fp16", "bf16", "torch_autocast"}) {
    const ResolvedConfig resolved = load("{\"" + key + "\": {\"enabled\": true}}");
    EXPECT_THAT(resolved.warnings, IsEmpty());
    const Config& config = resolved.config;
    EXPECT_EQ(config.fp16.enabled || config.bf16.enabled || config.torch_autocast.enabled, true);
    EXPECT_EQ(config.has_16_bit_parameters(), key != "torch_autocast");
    EXPECT_EQ(config.has_loss_scale(), key == "fp16");
    EXPECT_EQ(config.may_skip_steps(), key != "torch_autocast");
    const Config off = load("{\"" + key + "\": {\"enabled\": \"auto\"}}").config;
    EXPECT_FALSE(off.fp16.enabled || off.bf16.enabled || off.torch_autocast.enabled);
  }
  EXPECT_TRUE(load(R"({"torch_autocast": {"enabled": true, "dtype": "float16"}})").config.has_loss_scale());
  EXPECT_FALSE(load(R"({"bf16": {"enabled": true, "check_grad_overflow": false}})").config.may_skip_steps());
  EXPECT_THAT(load(R"({"fp16": {"enabled": true, "auto_cast": true, "fp16_master_weights_and_grads": true}})").warnings,
              ElementsAre(AllOf(HasSubstr("without effect"), HasSubstr("fp16.fp16_master_weights_and_grads"),
                                Not(HasSubstr("auto_cast")))));
}

TEST(LoadConfig, ReadsAFile) {
  const test::TempDir folder;
  const std::filesystem::path path = folder.path() / "config.json";
  std::ofstream(path) << R"({"seed": 5})";
  EXPECT_EQ(load(read_config_file(path)).config.seed, 5U);
}

TEST(LoadConfig, NamesAFileThatCannotBeRead) {
  const test::TempDir folder;
  EXPECT_THAT(message_of<IoError>([&] { (void)read_config_file(folder.path() / "no.json"); }), HasSubstr("no.json"));
  EXPECT_THAT(message_of<IoError>([&] { (void)read_config_file(folder.path()); }), HasSubstr(folder.path().string()));
}

TEST(ParseOverride, TakesJsonWhereItIsJsonAndTextElsewhere) {
  EXPECT_EQ(parse_override("a=1").value, Json(std::uint64_t{1}));
  EXPECT_EQ(parse_override("a=true").value, Json(true));
  EXPECT_EQ(parse_override("a=[1]").value, Json(Json::Array{Json(std::uint64_t{1})}));
  EXPECT_EQ(parse_override("a.b=mnist5k").value, Json("mnist5k"));
  EXPECT_EQ(parse_override("a.b=x=y").value, Json("x=y"));
  EXPECT_EQ(parse_override("a=").value, Json(""));
}

TEST(ParseOverride, RefusesWhatIsNoAssignment) {
  for (const char* text : {"", "a", "=1", ".a=1", "a.=1", "a..b=1"}) {
    EXPECT_THROW((void)parse_override(text), ConfigError) << text;
  }
}

}  // namespace
}  // namespace spillway::app::load_config_test

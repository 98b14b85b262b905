// Wrong configurations: each is one ConfigError that names the key, what was wanted and what was there.
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/config/load_config.hpp>
#include <spillway/offload/error.hpp>

#include "support/errors.hpp"

namespace spillway::app::wrong_config_test {
namespace {

using ::testing::HasSubstr;

struct WrongConfig {
  std::string_view text;
  std::string_view key;   ///< In the message, with what was wanted.
  std::string_view what;  ///< In the message: what was there, or what to do.
};

class WrongConfigTest : public ::testing::TestWithParam<WrongConfig> {};

TEST_P(WrongConfigTest, IsRefusedWithTheKeysName) {
  const WrongConfig& wrong = GetParam();
  EXPECT_THAT(message_of<ConfigError>([&] { (void)load_config({.text = wrong.text}); }),
              AllOf(HasSubstr(wrong.key), HasSubstr(wrong.what)))
      << wrong.text;
}

INSTANTIATE_TEST_SUITE_P(
    Types, WrongConfigTest,
    ::testing::Values(
        WrongConfig{R"([])", "configuration: wanted an object", "a list"},
        WrongConfig{R"({"seed": "x"})", "seed: wanted an integer", "text \"x\""},
        WrongConfig{R"({"seed": true})", "seed: wanted an integer", "true"},
        WrongConfig{R"({"seed": -1})", "seed: wanted an integer of at least 0", "number -1"},
        WrongConfig{R"({"seed": 1.5})", "seed: wanted an integer", "number 1.5"},
        WrongConfig{R"({"seed": 1e300})", "seed: wanted an integer", "1e+300"},
        WrongConfig{R"({"seed": 9223372036854775808})", "seed: wanted an integer", "9223372036854775808"},
        WrongConfig{R"({"seed": 36893488147419103232})", "seed: wanted an integer", "number"},
        WrongConfig{R"({"deterministic": 1})", "deterministic: wanted true or false", "number 1"},
        WrongConfig{R"({"out": 3})", "out: wanted text", "number 3"},
        WrongConfig{R"({"out": "a\u0000b"})", "out: wanted text", "text"},
        WrongConfig{R"({"optimizer": "AdamW"})", "optimizer: wanted an object", "text \"AdamW\""},
        WrongConfig{R"({"optimizer": {"type": 3}})", "optimizer.type: wanted one of", "number 3"},
        WrongConfig{R"({"optimizer": {"params": {"lr": "fast"}}})", "optimizer.params.lr: wanted a number", "fast"},
        WrongConfig{R"({"optimizer": {"params": {"betas": 0.9}}})", "optimizer.params.betas: wanted a list of 2",
                    "0.9"},
        WrongConfig{R"({"optimizer": {"params": {"betas": [0.9]}}})", "betas: wanted a list of 2", "a list"},
        WrongConfig{R"({"optimizer": {"params": {"betas": [0.9, "x"]}}})", "betas[1]: wanted a number", "text"},
        WrongConfig{R"({"zero_optimization": true})", "zero_optimization: wanted an object", "true"},
        WrongConfig{R"({"zero_optimization": {"cpu_offload": 1}})", "cpu_offload: wanted true or false", "number 1"},
        WrongConfig{R"({"zero_optimization": {"offload_optimizer": {"nvme_path": 7}}})", "nvme_path: wanted a folder",
                    "7"},
        WrongConfig{R"({"contrastive": []})", "contrastive: wanted an object", "a list"},
        WrongConfig{R"({"contrastive": {"queue_size": "auto"}})", "contrastive.queue_size: wanted an integer", "auto"},
        WrongConfig{R"({"encoder": {"channels": 16}})", "encoder.channels: wanted a list of integers", "number 16"},
        WrongConfig{R"({"encoder": {"channels": []}})", "encoder.channels: wanted a list of integers", "a list"},
        WrongConfig{R"({"encoder": {"channels": [16, 0]}})", "encoder.channels[1]: wanted an integer", "number 0"},
        WrongConfig{R"({"offload": {"nvme_path": 3}})", "offload.nvme_path: wanted a folder, or a list", "number 3"},
        WrongConfig{R"({"offload": {"nvme_path": ["a", ""]}})", "offload.nvme_path[1]: wanted a folder", "text"},
        WrongConfig{R"({"offload": {"nvme_path": [1]}})", "offload.nvme_path[0]: wanted a folder", "number 1"}));

INSTANTIATE_TEST_SUITE_P(
    Ranges, WrongConfigTest,
    ::testing::Values(
        WrongConfig{R"({"epochs": 0})", "epochs: wanted at least 1", "0"},
        WrongConfig{R"({"steps": 0})", "steps: wanted at least 1", "0"},
        WrongConfig{R"({"steps_per_print": 0})", "steps_per_print: wanted an integer of at least 1", "number 0"},
        WrongConfig{R"({"train_batch_size": 0})", "train_batch_size: wanted an integer", "number 0"},
        WrongConfig{R"({"train_batch_size": 4294967297})", "train_batch_size: wanted an integer of 1 to", "4294967297"},
        WrongConfig{R"({"gradient_clipping": -1})", "gradient_clipping: wanted a number of at least 0", "number -1"},
        WrongConfig{R"({"optimizer": {"params": {"lr": -1e-3}}})", "optimizer.params.lr", "number -0.001"},
        WrongConfig{R"({"optimizer": {"params": {"betas": [0.9, 1.0]}}})", "betas[1]: wanted a number", "below 1.0"},
        WrongConfig{R"({"zero_optimization": {"stage": 4}})", "zero_optimization.stage: wanted an integer of 0 to 3",
                    "4"},
        WrongConfig{R"({"zero_optimization": {"sub_group_size": 0}})", "sub_group_size: wanted", "number 0"},
        WrongConfig{R"({"zero_optimization": {"offload_optimizer": {"buffer_count": 1}}})", "buffer_count: wanted",
                    "1"},
        WrongConfig{R"({"zero_optimization": {"offload_optimizer": {"ratio": 1.5}}})",
                    "offload_optimizer.ratio: wanted", "at most 1.0"},
        WrongConfig{R"({"zero_optimization": {"reduce_bucket_size": 1.5e8, "sub_group_size": 1.5}})",
                    "zero_optimization.sub_group_size: wanted an integer", "1.5"},
        WrongConfig{R"({"aio": {"thread_count": 99}})", "aio.intra_op_parallelism: wanted an integer of 1 to 16", "99"},
        WrongConfig{R"({"aio": {"block_size": 5000}})", "aio.block_size: wanted a multiple of 4096", "5000"},
        WrongConfig{R"({"aio": {"queue_depth": 5000}})", "aio.queue_depth: wanted an integer of 0 to 4096", "5000"},
        WrongConfig{R"({"contrastive": {"temperature": 0}})", "contrastive.temperature: wanted a number above 0", "0"},
        WrongConfig{R"({"contrastive": {"momentum": 1.1}})", "contrastive.momentum: wanted", "at most 1.0"},
        WrongConfig{R"({"contrastive": {"queue_size": 0}})", "contrastive.queue_size: wanted", "number 0"},
        WrongConfig{R"({"contrastive": {"bank": {"segment_rows": 0}}})", "contrastive.bank.segment_rows", "number 0"},
        WrongConfig{R"({"data": {"train_fraction": 1.0}})", "data.train_fraction: wanted", "below 1.0"},
        WrongConfig{R"({"data": {"source": ""}})", "data.source: empty", "mnist5k"},
        WrongConfig{R"({"data": {"augment": {"scale_min": 2}}})", "data.augment.scale_min: above scale_max", "1.2"},
        WrongConfig{R"({"data": {"view": {"crop_scale_max": 0.5, "crop_scale_min": 0.6}}})",
                    "data.view.crop_scale_min: above crop_scale_max", "0.5"},
        WrongConfig{R"({"data": {"view": {"blur_sigma_min": 3}}})", "data.view.blur_sigma_min: above", "2.0"},
        WrongConfig{R"({"data": {"recipe": "crop"}})", "data.recipe: wanted", "moco_v2"},
        WrongConfig{R"({"data": {"augment": {"translate": 2}}})", "data.augment.translate: wanted", "number 2"},
        WrongConfig{R"({"evaluation": {"l2": 0}})", "evaluation.l2: wanted a number above 0", "number 0"},
        WrongConfig{R"({"offload": {"host_bytes": 0}})", "offload.host_bytes: wanted", "number 0"}));

INSTANTIATE_TEST_SUITE_P(
    Keys, WrongConfigTest,
    ::testing::Values(
        WrongConfig{R"({"contrastive": {"temprature": 1}})", "contrastive.temprature: unknown key",
                    "mean temperature?"},
        WrongConfig{R"({"contrastive": {"bank": {"dtyp": 1}}})", "contrastive.bank.dtyp: unknown key", "mean dtype?"},
        WrongConfig{R"({"data": {"augment": {"blur": 1}}})", "data.augment.blur: unknown key", ""},
        WrongConfig{R"({"epoch": 1})", "epoch: unknown key", "mean epochs?"},
        WrongConfig{R"({"contrastiv": {}})", "contrastiv: unknown key", "mean contrastive?"},
        WrongConfig{R"({"seed": 1, "seed": 2})", "the key seed is given twice", "keep one"},
        WrongConfig{R"({"aio": {"queue_depth": 1, "queue_depth": 2}})", "the key aio.queue_depth is given twice", ""}));

INSTANTIATE_TEST_SUITE_P(
    NotBuilt, WrongConfigTest,
    ::testing::Values(
        WrongConfig{R"({"method": "dino"})", "method: wanted one of moco, simclr, supcon, byol, simsiam",
                    "text \"dino\""},
        WrongConfig{R"({"encoder": {"name": "resnet101"}})", "encoder.name: wanted one of mlp, small_cnn", "resnet101"},
        WrongConfig{R"({"encoder": {"stem": "tiny"}})", "encoder.stem: wanted one of auto, imagenet", "tiny"},
        WrongConfig{R"({"encoder": {"checkpointing": true}})", "encoder.checkpointing: only resnet18", "encoder.name"},
        WrongConfig{R"({"optimizer": {"type": "Lamb"}})",
                    "optimizer.type: wanted one of Adam, AdamW, SGD, Adagrad, RMSprop, LARS", "Lamb"},
        WrongConfig{R"({"optimizer": {"type": "OneBitAdam"}})", "optimizer.type: wanted one of", "OneBitAdam"},
        WrongConfig{R"({"scheduler": {"type": "LRRangeTest"}})",
                    "scheduler.type: wanted one of none, WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle",
                    "LRRangeTest"},
        WrongConfig{R"({"optimizer": {"params": {"bias_correction": false}}})", "params.bias_correction",
                    "got false"}));

INSTANTIATE_TEST_SUITE_P(
    Precision, WrongConfigTest,
    ::testing::Values(
        WrongConfig{R"({"fp16": true})", "fp16: wanted an object", "true"},
        WrongConfig{R"({"fp16": {"enabled": 1}})", "fp16.enabled: wanted true or false", "number 1"},
        WrongConfig{R"({"fp16": {"loss_scale": -1}})", "fp16.loss_scale: wanted a number of at least 0", "-1"},
        WrongConfig{R"({"fp16": {"initial_scale_power": 128}})", "fp16.initial_scale_power: wanted an integer", "128"},
        WrongConfig{R"({"fp16": {"loss_scale_window": 0}})", "fp16.loss_scale_window: wanted", "number 0"},
        WrongConfig{R"({"fp16": {"hysteresis": 0.5}})", "fp16.hysteresis: wanted an integer", "0.5"},
        WrongConfig{R"({"fp16": {"enabled": true, "initial_scale_power": 2, "min_loss_scale": 5}})",
                    "fp16.min_loss_scale: above the first scale", "initial_scale_power"},
        WrongConfig{R"({"bf16": {"enabled": "yes"}})", "bf16.enabled: wanted true or false", "text \"yes\""},
        WrongConfig{R"({"torch_autocast": {"dtype": "int8"}})", "torch_autocast.dtype: wanted one of bfloat16, float16",
                    "int8"},
        WrongConfig{R"({"torch_autocast": {"lower_precision_safe_modules": [1]}})",
                    "torch_autocast.lower_precision_safe_modules: wanted a list of texts", "a list"},
        WrongConfig{R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})", "bf16.enabled: true beside fp16",
                    "keep one"},
        WrongConfig{R"({"torch_autocast": {"enabled": true}, "bf16": {"enabled": true}})",
                    "torch_autocast.enabled: true beside bf16.enabled", "keep one"},
        WrongConfig{R"({"torch_autocast": {"enabled": true}, "fp16": {"enabled": true}})",
                    "torch_autocast.enabled: true beside fp16.enabled", "keep one"},
        WrongConfig{R"({"optimizer": {"type": "RMSprop"}, "fp16": {"enabled": true}})",
                    "optimizer.type: RMSprop beside fp16.enabled", "torch_autocast"},
        WrongConfig{R"({"offload": {"state_dtype": "fp16"}})", "offload.state_dtype: wanted one of fp32, bf16, int8",
                    "fp16"},
        WrongConfig{R"({"optimizer": {"type": "SGD"}, "offload": {"state_dtype": "int8"}})",
                    "offload.state_dtype: int8", "Adam and AdamW"},
        WrongConfig{R"({"optimizer": {"type": "LARS"}, "offload": {"state_dtype": "bf16"}})",
                    "offload.state_dtype: bf16", "take fp32"},
        WrongConfig{R"({"bf16": {"enabled": true, "bf16_optimizer_states": true}, "offload": {"state_dtype": "int8"}})",
                    "offload.state_dtype: int8 contradicts bf16.bf16_optimizer_states", "keep one"},
        WrongConfig{R"({"encoder": {"float32_layers": [1]}})", "encoder.float32_layers[0]: wanted", "number 1"}));

INSTANTIATE_TEST_SUITE_P(
    Schedulers, WrongConfigTest,
    ::testing::Values(
        WrongConfig{R"({"scheduler": {"params": {"warmup_num_steps": 9}}})", "scheduler.type: missing", "WarmupLR"},
        WrongConfig{R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": -1}}})",
                    "scheduler.params.warmup_num_steps: wanted an integer", "-1"},
        WrongConfig{R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "cosine"}}})",
                    "scheduler.params.warmup_type: wanted one of log, linear", "cosine"},
        WrongConfig{R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": [0.1, 0.2]}}})",
                    "scheduler.params.warmup_max_lr: wanted a number", "a list"},
        WrongConfig{R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 0}}})",
                    "scheduler.params.total_num_steps: wanted an integer of at least 1", "0"},
        WrongConfig{R"({"scheduler": {"type": "WarmupCosineLR", "params": {"cos_min_ratio": 2}}})",
                    "scheduler.params.cos_min_ratio: wanted", "2"},
        WrongConfig{R"({"scheduler": {"type": "OneCycle", "params": {"cycle_max_lr": 0.1}}})",
                    "scheduler.params.cycle_min_lr: missing", "no default"},
        WrongConfig{R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": "auto"}}})",
                    "scheduler.params.cycle_max_lr: missing", "no default"},
        WrongConfig{R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 1,
                        "cycle_max_mom": 1}}})",
                    "scheduler.params.cycle_max_mom: wanted", "below 1.0"}));

INSTANTIATE_TEST_SUITE_P(
    WithoutEffect, WrongConfigTest,
    ::testing::Values(WrongConfig{R"({"zero_optimization": {"overlap_comm": "yes"}})",
                                  "zero_optimization.overlap_comm: wanted true or false", "yes"},
                      WrongConfig{R"({"zero_optimization": {"stage3_max_live_parameters": 0.5}})",
                                  "zero_optimization.stage3_max_live_parameters: wanted an integer", "0.5"},
                      WrongConfig{R"({"zero_optimization": {"offload_param": "cpu"}})",
                                  "zero_optimization.offload_param: wanted an object", "cpu"},
                      WrongConfig{R"({"gradient_predivide_factor": "big"})",
                                  "gradient_predivide_factor: wanted a number", "big"},
                      WrongConfig{R"({"tensorboard": {"job_name": 3}})", "tensorboard.job_name: wanted text", "3"},
                      WrongConfig{R"({"wandb": true})", "wandb: wanted an object", "true"},
                      WrongConfig{R"({"optimizer": {"type": "SGD", "params": {"betas": [0.9, "x"]}}})",
                                  "optimizer.params.betas: wanted a list of numbers", "a list"}));

INSTANTIATE_TEST_SUITE_P(
    Contradictions, WrongConfigTest,
    ::testing::Values(
        WrongConfig{R"({"steps": 1, "epochs": 1})", "steps: given beside epochs", "keep one"},
        WrongConfig{R"({"train_batch_size": 9, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})",
                    "train_batch_size: 9 contradicts", "leave one of them out"},
        WrongConfig{R"({"train_micro_batch_size_per_gpu": 2e9, "gradient_accumulation_steps": 2e9})",
                    "train_batch_size: train_micro_batch_size_per_gpu 2000000000", "is more than 2147483647"},
        WrongConfig{R"({"contrastive": {"queue_schedule": {"first_rows": 9}}})",
                    "contrastive.queue_schedule: first_rows and steps go together", "both or neither"},
        WrongConfig{R"({"aio": {"thread_count": 2, "intra_op_parallelism": 4}})", "aio.thread_count: number 2",
                    "contradicts aio.intra_op_parallelism"},
        WrongConfig{R"({"zero_optimization": {"cpu_offload": true, "offload_optimizer": {"device": "nvme"}}})",
                    "zero_optimization.cpu_offload: true contradicts", "nvme"},
        WrongConfig{R"({"gradient_clipping": 1, "optimizer": {"params": {"max_grad_norm": 2}}})",
                    "optimizer.params.max_grad_norm", "contradicts gradient_clipping"},
        WrongConfig{R"({"optimizer": {"type": "SGD", "params": {"nesterov": true}}})", "optimizer.params.nesterov",
                    "needs momentum"}));

TEST(WrongConfig, StrictMakesAnUnknownKeyOfDeepSpeedsAnError) {
  constexpr std::string_view kText = R"({"zero_optimization": {"stag": 2}})";
  EXPECT_NO_THROW((void)load_config({.text = kText}));
  EXPECT_THAT(message_of<ConfigError>([&] { (void)load_config({.text = kText, .strict = true}); }),
              AllOf(HasSubstr("zero_optimization.stag"), HasSubstr("mean stage?")));
}

TEST(WrongConfig, AnOverrideIsCheckedAsTheFileIs) {
  const auto load_with = [](const char* assignment) {
    const std::vector<Override> overrides = {parse_override(assignment)};
    (void)load_config({.text = R"({"seed": 1})", .overrides = overrides});
  };
  EXPECT_THAT(message_of<ConfigError>([&] { load_with("contrastive.temprature=1"); }), HasSubstr("temperature?"));
  EXPECT_THAT(message_of<ConfigError>([&] { load_with("seed.x=1"); }), HasSubstr("seed.x: wanted an object"));
  EXPECT_THAT(message_of<ConfigError>([&] { load_with("a.b.c.d.e.f.g.h.i=1"); }), HasSubstr("unknown key"));
}

}  // namespace
}  // namespace spillway::app::wrong_config_test

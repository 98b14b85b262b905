#include <spillway/app/config/config_keys.hpp>

#include <algorithm>
#include <array>
#include <string>

#include <spillway/app/config/key_ranges.hpp>
#include <spillway/app/config/training_keys.hpp>

namespace spillway::app {
namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 5> kMethods = {"moco", "simclr", "supcon", "byol", "simsiam"};
constexpr std::array<std::string_view, 3> kDevices = {"none", "cpu", "nvme"};
constexpr std::array<std::string_view, 3> kStateDtypes = {"fp32", "bf16", "int8"};
constexpr std::array<std::string_view, 3> kEngines = {"auto", "io_uring", "threads"};
constexpr std::array<std::string_view, 5> kDtypes = {"fp16", "bf16", "fp32", "fp64", "int8"};
constexpr std::array<std::string_view, 2> kMomentumSchedules = {"constant", "cosine"};
constexpr std::array<std::string_view, 2> kAccumulations = {"plain", "cached"};
constexpr std::array<std::string_view, 2> kGrowths = {"linear", "geometric"};
constexpr std::array<std::string_view, 3> kHeads = {"mlp", "batch_norm", "batch_norm_output"};
constexpr std::array<std::string_view, 5> kEncoders = {"mlp", "small_cnn", "resnet18", "resnet34", "resnet50"};
constexpr std::array<std::string_view, 5> kRecipes = {"auto", "digits", "simclr", "moco_v2", "byol"};
constexpr std::array<std::string_view, 3> kStems = {"auto", "imagenet", "cifar"};

constexpr NumberRange kDegrees{.min = 0.0, .max = 180.0};
constexpr NumberRange kShearDegrees{.min = 0.0, .max = 80.0};
constexpr NumberRange kAboveZeroShare{.min = 0.0, .max = 1.0, .open_min = true};
constexpr NumberRange kJitter{.min = 0.0, .max = 10.0};
constexpr NumberRange kHue{.min = 0.0, .max = 0.5};
constexpr NumberRange kScale{.min = 0.01, .max = 100.0};

void visit_zero(BlockVisitor& visitor, ZeroConfig& config) {
  visitor.integer("stage", config.stage, {.max = 3});
  visitor.integer("sub_group_size", config.sub_group_size, kCount);
  visitor.integer("reduce_bucket_size", config.reduce_bucket_size, kCount);
  visitor.block("offload_optimizer", BlockOwner::kDeepSpeed, [&](BlockVisitor& inner) {
    OffloadOptimizerConfig& offload = config.offload_optimizer;
    choose(inner, "device", offload.device, kDevices);
    inner.integer("buffer_count", offload.buffer_count, {.min = 2, .max = 64});
    inner.boolean("pin_memory", offload.pin_memory);
    inner.number("ratio", offload.ratio, kShare);
  });
}

void visit_aio(BlockVisitor& visitor, AioConfig& config) {
  visitor.integer("block_size", config.block_size, {.max = 1U << 30U});
  visitor.integer("queue_depth", config.queue_depth, {.max = 4096});
  visitor.integer("intra_op_parallelism", config.intra_op_parallelism, {.min = 1, .max = 16});
  choose(visitor, "engine", config.engine, kEngines);
}

void visit_contrastive(BlockVisitor& visitor, ContrastiveConfig& config) {
  visitor.number("temperature", config.temperature, kAboveZero);
  visitor.boolean("learnable_temperature", config.learnable_temperature);
  visitor.integer("queue_size", config.queue_size, kCount);
  visitor.block("queue_schedule", BlockOwner::kOurs, [&](BlockVisitor& inner) {
    inner.integer("first_rows", config.queue_schedule.first_rows, {});
    inner.integer("steps", config.queue_schedule.steps, {});
    choose(inner, "growth", config.queue_schedule.growth, kGrowths);
  });
  visitor.boolean("exclude_same_class", config.exclude_same_class);
  visitor.number("momentum", config.momentum, kShare);
  choose(visitor, "momentum_schedule", config.momentum_schedule, kMomentumSchedules);
  choose(visitor, "accumulation", config.accumulation, kAccumulations);
  choose(visitor, "projection_head", config.projection_head, kHeads);
  visitor.integer("projection_hidden_dim", config.projection_hidden_dim, kPositive32);
  visitor.integer("projection_dim", config.projection_dim, kPositive32);
  visitor.integer("predictor_hidden_dim", config.predictor_hidden_dim, kPositive32);
  visitor.integer("batch_norm_groups", config.batch_norm_groups, kPositive32);
  visitor.block("bank", BlockOwner::kOurs, [&](BlockVisitor& inner) {
    choose(inner, "dtype", config.bank.dtype, kDtypes);
    inner.integer("segment_rows", config.bank.segment_rows, kPositive32);
    choose(inner, "device", config.bank.device, kDevices);
    inner.integer("host_bytes", config.bank.host_bytes, {});
  });
}

void visit_augment(BlockVisitor& visitor, AugmentConfig& config) {
  visitor.boolean("enabled", config.enabled);
  visitor.number("rotation_degrees", config.rotation_degrees, kDegrees);
  visitor.number("translate", config.translate, kShare);
  visitor.number("scale_min", config.scale_min, kScale);
  visitor.number("scale_max", config.scale_max, kScale);
  visitor.number("shear_degrees", config.shear_degrees, kShearDegrees);
  visitor.number("contrast", config.contrast, kShare);
  visitor.number("brightness", config.brightness, kShare);
  visitor.number("noise", config.noise, kShare);
}

void visit_view(BlockVisitor& visitor, ViewConfig& config) {
  visitor.optional_number("crop_scale_min", config.crop_scale_min, kAboveZeroShare);
  visitor.optional_number("crop_scale_max", config.crop_scale_max, kAboveZeroShare);
  visitor.optional_number("flip_probability", config.flip_probability, kShare);
  visitor.optional_number("jitter_probability", config.jitter_probability, kShare);
  visitor.optional_number("brightness", config.brightness, kJitter);
  visitor.optional_number("contrast", config.contrast, kJitter);
  visitor.optional_number("saturation", config.saturation, kJitter);
  visitor.optional_number("hue", config.hue, kHue);
  visitor.optional_number("grayscale_probability", config.grayscale_probability, kShare);
  visitor.optional_number("blur_probability", config.blur_probability, kShare);
  visitor.optional_number("blur_sigma_min", config.blur_sigma_min, kAboveZero);
  visitor.optional_number("blur_sigma_max", config.blur_sigma_max, kAboveZero);
  visitor.optional_number("solarize_probability", config.solarize_probability, kShare);
  visitor.optional_number("solarize_threshold", config.solarize_threshold, kShare);
}

void visit_data(BlockVisitor& visitor, DataConfig& config) {
  visitor.text("source", config.source);
  visitor.number("train_fraction", config.train_fraction, kInsideUnit);
  visitor.integer("image_size", config.image_size, {.min = 8, .max = 4096});
  visitor.boolean("grey", config.grey);
  visitor.boolean("check", config.check);
  visitor.integer("damaged_max", config.damaged_max, {});
  visitor.integer("workers", config.workers, {.max = 256});
  visitor.integer("prefetch", config.prefetch, {.min = 1, .max = 1024});
  choose(visitor, "recipe", config.recipe, kRecipes);
  visitor.block("view", BlockOwner::kOurs, [&](BlockVisitor& inner) { visit_view(inner, config.view); });
  visitor.block("augment", BlockOwner::kOurs, [&](BlockVisitor& inner) { visit_augment(inner, config.augment); });
  visitor.block("synthetic", BlockOwner::kOurs, [&](BlockVisitor& inner) {
    inner.integer("images", config.synthetic.images, {.min = 2, .max = 10'000'000});
    inner.integer("classes", config.synthetic.classes, {.min = 1, .max = 1000});
    inner.integer("side", config.synthetic.side, {.min = 2, .max = 4096});
  });
}

void visit_encoder(BlockVisitor& visitor, EncoderConfig& config) {
  choose(visitor, "name", config.kind, kEncoders);
  visitor.integers("channels", config.channels, {.min = 1, .max = 65536});
  visitor.integers("hidden", config.hidden, {.min = 1, .max = 1U << 20U});
  choose(visitor, "stem", config.stem, kStems);
  visitor.boolean("zero_init_residual", config.zero_init_residual);
  visitor.boolean("checkpointing", config.checkpointing);
  visitor.texts("float32_layers", config.float32_layers, "a part of a parameter's name");
}

void visit_offload(BlockVisitor& visitor, OffloadConfig& config) {
  visitor.integer("host_bytes", config.host_bytes, kCount);
  visitor.integer("disk_bytes", config.disk_bytes, {});
  choose(visitor, "gradients", config.gradients, kDevices);
  choose(visitor, "state_dtype", config.state_dtype, kStateDtypes);
  visitor.texts("nvme_path", config.nvme_paths, "a folder");
}

void visit_evaluation(BlockVisitor& visitor, EvaluationConfig& config) {
  visitor.integer("labels_per_class", config.labels_per_class, {.min = 1, .max = 10'000});
  visitor.integer("draws", config.draws, {.min = 1, .max = 1000});
  visitor.number("l2", config.l2, kAboveZero);
  visitor.integer("knn_neighbours", config.knn_neighbours, kPositive32);
  visitor.number("knn_temperature", config.knn_temperature, kAboveZero);
  visitor.integer("every", config.every, {.max = kPositive32.max});
}

void visit_run(BlockVisitor& visitor, Config& config) {
  choose(visitor, "method", config.method, kMethods);
  visitor.integer("seed", config.seed, {});
  visitor.integer("epochs", config.epochs, {.max = kPositive32.max});
  visitor.integer("steps", config.steps, {});
  visitor.text("out", config.out);
  visitor.boolean("deterministic", config.deterministic);
  visitor.integer("train_batch_size", config.train_batch_size, kPositive32);
  visitor.integer("train_micro_batch_size_per_gpu", config.micro_batch_size_per_gpu, kPositive32);
  visitor.integer("gradient_accumulation_steps", config.gradient_accumulation_steps, kPositive32);
  visitor.boolean("dataloader_drop_last", config.data.drop_last);
  visitor.integer("steps_per_print", config.steps_per_print, kCount);
  visitor.number("gradient_clipping", config.gradient_clipping, {});
  visitor.boolean("wall_clock_breakdown", config.wall_clock_breakdown);
  visitor.boolean("memory_breakdown", config.memory_breakdown);
  visitor.boolean("dump_state", config.dump_state);
}

void visit_checkpoint(BlockVisitor& visitor, CheckpointConfig& config) {
  visitor.integer("every", config.every, {});
  visitor.integer("keep_last", config.keep_last, kCount);
  visitor.integer("keep_every", config.keep_every, {});
}

}  // namespace

void visit_config(BlockVisitor& visitor, Config& config) {
  visit_run(visitor, config);
  const auto deepspeed = BlockOwner::kDeepSpeed;
  const auto ours = BlockOwner::kOurs;
  visit_training(visitor, config);
  visitor.block("zero_optimization", deepspeed, [&](BlockVisitor& inner) { visit_zero(inner, config.zero); });
  visitor.block("aio", deepspeed, [&](BlockVisitor& inner) { visit_aio(inner, config.aio); });
  visitor.block("contrastive", ours, [&](BlockVisitor& inner) { visit_contrastive(inner, config.contrastive); });
  visitor.block("data", ours, [&](BlockVisitor& inner) { visit_data(inner, config.data); });
  visitor.block("encoder", ours, [&](BlockVisitor& inner) { visit_encoder(inner, config.encoder); });
  visitor.block("offload", ours, [&](BlockVisitor& inner) { visit_offload(inner, config.offload); });
  visitor.block("evaluation", ours, [&](BlockVisitor& inner) { visit_evaluation(inner, config.evaluation); });
  visitor.block("ranks", ours, [&](BlockVisitor& inner) {
    inner.integer("timeout_s", config.ranks.timeout_s, {.min = 1, .max = 1'000'000});
  });
  // DeepSpeed has a block of this name too, whose keys are about the files of its own.
  visitor.block("checkpoint", deepspeed, [&](BlockVisitor& inner) { visit_checkpoint(inner, config.checkpoint); });
}

std::string_view to_string(Method method) noexcept { return kMethods[static_cast<std::size_t>(method)]; }

std::span<const std::string_view> method_names() noexcept { return kMethods; }

void apply_method_defaults(Config& config, Method method) noexcept {
  config.method = method;
  ContrastiveConfig& contrastive = config.contrastive;
  if (method != Method::kMoco) contrastive.batch_norm_groups = 1;  // The others have no keys to tell from queries.
  switch (method) {
    case Method::kMoco:
      break;
    case Method::kSimClr:
      contrastive.temperature = 0.5;  // Chen et al. 2020, app. B.9: CIFAR-10.
      break;
    case Method::kSupCon:
      contrastive.temperature = 0.1;  // Khosla et al. 2020, sec. 4.4.
      break;
    case Method::kByol:
      contrastive.projection_head = HeadKind::kBatchNorm;  // Grill et al. 2020, sec. 3.3.
      break;
    case Method::kSimSiam:  // Chen & He 2021, sec. 3 and app. D: the predictor's inside is a quarter as wide.
      contrastive.projection_head = HeadKind::kBatchNormOutput;
      contrastive.projection_dim = 256;
      contrastive.predictor_hidden_dim = 64;
      break;
  }
}

bool is_own_top_level_key(std::string_view key) noexcept {
  constexpr std::array<std::string_view, 11> kOwn = {"method",        "epochs",      "steps", "out",
                                                     "deterministic", "contrastive", "data",  "encoder",
                                                     "offload",       "evaluation",  "ranks"};
  return std::ranges::find(kOwn, key) != kOwn.end();
}

}  // namespace spillway::app

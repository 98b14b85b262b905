#include <spillway/app/config/training_keys.hpp>

#include <array>

#include <spillway/app/config/key_ranges.hpp>

namespace spillway::app {
namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 6> kOptimizers = {"Adam", "AdamW", "SGD", "Adagrad", "RMSprop", "LARS"};
constexpr std::array<std::string_view, 5> kSchedulers = {"none", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR",
                                                         "OneCycle"};
constexpr std::array<std::string_view, 2> kCurves = {"log", "linear"};
constexpr std::array<std::string_view, 2> kAutocastDtypes = {"bfloat16", "float16"};

/// Up to here a power of two is a float32.
constexpr IntegerRange kScalePower{.max = 127};

void visit_adam(BlockVisitor& visitor, OptimizerConfig& config) {
  visitor.numbers("betas", config.betas, kBelowOne);
  visitor.number("eps", config.eps, {});
  visitor.boolean("amsgrad", config.amsgrad);
  if (config.kind == OptimizerKind::kAdam) {
    visitor.boolean("adam_w_mode", config.adam_w_mode);
  }
}

void visit_optimizer_params(BlockVisitor& visitor, OptimizerConfig& config) {
  visitor.number("lr", config.lr, {});
  visitor.number("weight_decay", config.weight_decay, {});
  switch (config.kind) {
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      visit_adam(visitor, config);
      break;
    case OptimizerKind::kSgd:
      visitor.number("momentum", config.momentum, {});
      visitor.number("dampening", config.dampening, kShare);
      visitor.boolean("nesterov", config.nesterov);
      break;
    case OptimizerKind::kAdagrad:
      visitor.number("eps", config.eps, {});
      visitor.number("lr_decay", config.lr_decay, {});
      visitor.number("initial_accumulator_value", config.initial_accumulator_value, {});
      break;
    case OptimizerKind::kRmsprop:
      visitor.number("eps", config.eps, {});
      visitor.number("alpha", config.alpha, kShare);
      visitor.number("momentum", config.momentum, {});
      visitor.boolean("centered", config.centered);
      break;
    case OptimizerKind::kLars:
      visitor.number("momentum", config.momentum, {});
      visitor.number("trust_coefficient", config.trust_coefficient, {});
      visitor.boolean("nesterov", config.nesterov);
      break;
  }
}

void visit_warmup(BlockVisitor& visitor, SchedulerConfig& config) {
  if (config.kind != SchedulerKind::kWarmup) {
    visitor.optional_integer("total_num_steps", config.total_num_steps, kCount);
  }
  visitor.optional_integer("warmup_num_steps", config.warmup_num_steps, {});
  choose(visitor, "warmup_type", config.warmup_type, kCurves);
  if (config.kind == SchedulerKind::kWarmupCosine) {
    visitor.number("warmup_min_ratio", config.warmup_min_ratio, kShare);
    visitor.number("cos_min_ratio", config.cos_min_ratio, kShare);
  } else {
    visitor.number("warmup_min_lr", config.warmup_min_lr, {});
    visitor.optional_number("warmup_max_lr", config.warmup_max_lr, {});
  }
}

void visit_cycle(BlockVisitor& visitor, SchedulerConfig& config) {
  visitor.number("cycle_min_lr", config.cycle_min_lr, {});
  visitor.number("cycle_max_lr", config.cycle_max_lr, {});
  visitor.integer("cycle_first_step_size", config.cycle_first_step_size, kPositive32);
  visitor.optional_integer("cycle_second_step_size", config.cycle_second_step_size, kPositive32);
  visitor.integer("cycle_first_stair_count", config.cycle_first_stair_count, {.max = kPositive32.max});
  visitor.optional_integer("cycle_second_stair_count", config.cycle_second_stair_count, {.max = kPositive32.max});
  visitor.integer("decay_step_size", config.decay_step_size, {});
  visitor.number("decay_lr_rate", config.decay_lr_rate, {});
  visitor.boolean("cycle_momentum", config.cycle_momentum);
  visitor.number("cycle_min_mom", config.cycle_min_mom, kBelowOne);
  visitor.number("cycle_max_mom", config.cycle_max_mom, kBelowOne);
  visitor.number("decay_mom_rate", config.decay_mom_rate, {});
}

void visit_fp16(BlockVisitor& visitor, Fp16Config& config) {
  visitor.boolean("enabled", config.enabled);
  visitor.number("loss_scale", config.loss_scale, {});
  visitor.integer("initial_scale_power", config.initial_scale_power, kScalePower);
  visitor.integer("loss_scale_window", config.loss_scale_window, kCount);
  visitor.integer("hysteresis", config.hysteresis, kCount);
  visitor.boolean("consecutive_hysteresis", config.consecutive_hysteresis);
  visitor.number("min_loss_scale", config.min_loss_scale, {});
}

void visit_bf16(BlockVisitor& visitor, Bf16Config& config) {
  visitor.boolean("enabled", config.enabled);
  visitor.boolean("check_grad_overflow", config.check_grad_overflow);
  visitor.boolean("bf16_optimizer_states", config.bf16_optimizer_states);
}

}  // namespace

void visit_training(BlockVisitor& visitor, Config& config) {
  const auto deepspeed = BlockOwner::kDeepSpeed;
  visitor.block("optimizer", deepspeed, [&](BlockVisitor& block) {
    choose(block, "type", config.optimizer.kind, kOptimizers);
    block.block("params", deepspeed, [&](BlockVisitor& inner) { visit_optimizer_params(inner, config.optimizer); });
  });
  visitor.block("scheduler", deepspeed, [&](BlockVisitor& block) {
    choose(block, "type", config.scheduler.kind, kSchedulers);
    block.block("params", deepspeed, [&](BlockVisitor& inner) {
      if (config.scheduler.kind == SchedulerKind::kOneCycle) {
        visit_cycle(inner, config.scheduler);
      } else if (config.scheduler.kind != SchedulerKind::kNone) {
        visit_warmup(inner, config.scheduler);
      }
    });
  });
  visitor.block("fp16", deepspeed, [&](BlockVisitor& block) { visit_fp16(block, config.fp16); });
  visitor.block("bf16", deepspeed, [&](BlockVisitor& block) { visit_bf16(block, config.bf16); });
  visitor.block("torch_autocast", deepspeed, [&](BlockVisitor& block) {
    block.boolean("enabled", config.torch_autocast.enabled);
    choose(block, "dtype", config.torch_autocast.dtype, kAutocastDtypes);
  });
}

std::string_view to_string(SchedulerKind kind) noexcept { return kSchedulers[static_cast<std::size_t>(kind)]; }

std::span<const std::string_view> optimizer_names() noexcept { return kOptimizers; }

std::span<const std::string_view> scheduler_names() noexcept { return kSchedulers; }

void apply_optimizer_defaults(OptimizerConfig& config, OptimizerKind kind) noexcept {
  config.kind = kind;
  if (kind == OptimizerKind::kAdagrad || kind == OptimizerKind::kRmsprop) config.lr = 1e-2;
  if (kind == OptimizerKind::kAdagrad) config.eps = 1e-10;
  if (kind == OptimizerKind::kLars) {  // Chen et al. 2020, sec. 2.3: the rate for a batch of 256.
    config.lr = 0.3;
    config.momentum = 0.9;
    config.weight_decay = 1e-6;
  }
}

void apply_scheduler_defaults(SchedulerConfig& config, SchedulerKind kind) noexcept {
  config.kind = kind;
  if (kind == SchedulerKind::kWarmupDecay) config.warmup_max_lr = 1e-3;
}

}  // namespace spillway::app

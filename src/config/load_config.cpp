#include <spillway/app/config/load_config.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include <spillway/app/config/batch_sizes.hpp>
#include <spillway/app/config/config_keys.hpp>
#include <spillway/app/config/config_reader.hpp>
#include <spillway/app/config/json_path.hpp>
#include <spillway/app/config/key_names.hpp>
#include <spillway/app/config/old_spellings.hpp>
#include <spillway/app/config/training_keys.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

/// Puts a value in the place of what the file says, in either spelling.
void apply_override(Json& root, const Override& change, std::vector<std::string>& warnings) {
  Json alone = Json::Object();
  make_at(alone, change.key) = change.value;
  replace_old_spellings(alone, warnings);
  const auto moved = moved_keys();
  if (std::ranges::find(moved, change.key, &MovedKey::from) == moved.end()) {
    make_at(root, change.key) = make_at(alone, change.key);
  }
  for (const MovedKey& key : moved) {
    if (const Json* value = find_at(alone, key.to)) make_at(root, key.to) = *value;
  }
  // How long a run is can be said in two ways; the one said last replaces the other.
  if (change.key == "steps" || change.key == "epochs") {
    take_at(root, change.key == "steps" ? "epochs" : "steps");
  }
}

/// File and overrides in one document, in new spellings.
Json merge(const ConfigRequest& request, std::vector<std::string>& warnings) {
  Json root = parse_json(request.text, request.label);
  if (root.get_if<Json::Object>() == nullptr) {
    throw ConfigError(request.label + ": wanted an object, got " + root.describe());
  }
  replace_old_spellings(root, warnings);
  for (const Override& change : request.overrides) apply_override(root, change, warnings);
  return root;
}

/// Refuses what is known, not to be had, and would change results in silence if it were passed over.
void check_unbuilt(const Json& root, const OptimizerConfig& optimizer) {
  const Json* correction = find_at(root, "optimizer.params.bias_correction");
  if (optimizer.is_adam() && correction != nullptr && *correction == Json(false)) {
    throw ConfigError(
        "optimizer.params.bias_correction: wanted true, got false; LibTorch's Adam always corrects the bias");
  }
}

/// What DeepSpeed's schedulers have no default for.
void check_scheduler(const Json& root, const SchedulerConfig& scheduler) {
  if (scheduler.kind == SchedulerKind::kNone) {
    if (find_at(root, "scheduler.params") != nullptr && find_at(root, "scheduler.type") == nullptr) {
      throw ConfigError(
          "scheduler.type: missing beside scheduler.params; name WarmupLR, WarmupDecayLR, "
          "WarmupCosineLR or OneCycle");
    }
    return;
  }
  for (const char* path : {"scheduler.params.cycle_min_lr", "scheduler.params.cycle_max_lr"}) {
    const Json* rate = find_at(root, path);
    if (scheduler.kind == SchedulerKind::kOneCycle && (rate == nullptr || *rate == Json("auto"))) {
      throw ConfigError(std::string(path) + ": missing; OneCycle has no default for it");
    }
  }
}

void check_state_dtype(const Config& config) {
  if (config.offload.state_dtype == StateDtype::kFp32) return;
  const OptimizerKind kind = config.optimizer.kind;
  const bool adam = kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW;
  const std::string where = "offload.state_dtype: ";
  if (config.offload.state_dtype == StateDtype::kInt8 && !adam) {
    throw ConfigError(where + "int8 is for Adam and AdamW; take fp32, or another optimizer.type");
  }
  if (kind == OptimizerKind::kRmsprop || kind == OptimizerKind::kLars) {
    throw ConfigError(where + "bf16 is for Adam, AdamW, SGD and Adagrad; take fp32, or another optimizer.type");
  }
  if (config.offload.state_dtype == StateDtype::kInt8 && config.bf16.enabled && config.bf16.bf16_optimizer_states) {
    throw ConfigError(where + "int8 contradicts bf16.bf16_optimizer_states: true; keep one of them");
  }
}

/// Ways of training that exclude one another.
void check_precision(const Config& config) {
  if (config.fp16.enabled && config.bf16.enabled) {
    throw ConfigError("bf16.enabled: true beside fp16.enabled; keep one of them");
  }
  if (config.torch_autocast.enabled && (config.fp16.enabled || config.bf16.enabled)) {
    throw ConfigError("torch_autocast.enabled: true beside " +
                      std::string(config.fp16.enabled ? "fp16.enabled" : "bf16.enabled") +
                      "; autocast is for 32-bit parameters, keep one of them");
  }
  const OptimizerKind kind = config.optimizer.kind;
  if (config.has_16_bit_parameters() && (kind == OptimizerKind::kRmsprop || kind == OptimizerKind::kLars)) {
    throw ConfigError("optimizer.type: " + std::string(kind == OptimizerKind::kLars ? "LARS" : "RMSprop") + " beside " +
                      std::string(config.fp16.enabled ? "fp16.enabled" : "bf16.enabled") +
                      " has no float32 masters for 16-bit parameters; take Adam, AdamW, SGD or Adagrad, or "
                      "torch_autocast");
  }
  check_state_dtype(config);
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

void add_warnings(const ReadingNotes& notes, std::uint64_t stage, std::vector<std::string>& warnings) {
  const bool stage3 = stage == 3;
  warnings.insert(warnings.end(), notes.unknown.begin(), notes.unknown.end());
  if (stage3 || !notes.stage3.empty()) {
    std::string line =
        stage3 ? "zero_optimization.stage: 3 runs as 2: parameters stay resident" : "only stage 3 has these";
    line += notes.stage3.empty() ? "" : "; without effect: " + joined(notes.stage3);
    warnings.push_back(std::move(line));
  }
  if (!notes.no_effect.empty()) {
    warnings.push_back("understood, but without effect in this version: " + joined(notes.no_effect));
  }
}

void check_together(const Config& config) {
  if (config.data.augment.scale_min > config.data.augment.scale_max) {
    throw ConfigError("data.augment.scale_min: above scale_max; wanted at most " +
                      Json(config.data.augment.scale_max).dump());
  }
  const ViewConfig& view = config.data.view;
  if (view.crop_scale_min.value_or(0.0) > view.crop_scale_max.value_or(1.0)) {
    throw ConfigError("data.view.crop_scale_min: above crop_scale_max; wanted at most " +
                      Json(view.crop_scale_max.value_or(1.0)).dump());
  }
  if (view.blur_sigma_min.value_or(kBlurSigmaMin) > view.blur_sigma_max.value_or(kBlurSigmaMax)) {
    throw ConfigError("data.view.blur_sigma_min: above blur_sigma_max; wanted at most " +
                      Json(view.blur_sigma_max.value_or(kBlurSigmaMax)).dump());
  }
  if (config.data.source.empty()) {
    throw ConfigError("data.source: empty; name mnist5k, digits, synthetic or a path");
  }
  if (config.encoder.checkpointing && !config.encoder.is_resnet()) {
    throw ConfigError(
        "encoder.checkpointing: only resnet18, resnet34 and resnet50 have stages to run again; set it "
        "to false or encoder.name to one of these");
  }
  const QueueScheduleConfig& schedule = config.contrastive.queue_schedule;
  if ((schedule.first_rows == 0) != (schedule.steps == 0)) {
    throw ConfigError("contrastive.queue_schedule: first_rows and steps go together; give both or neither");
  }
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.nesterov && (optimizer.momentum <= 0.0 || optimizer.dampening != 0.0)) {
    throw ConfigError("optimizer.params.nesterov: needs momentum above 0 and dampening 0");
  }
  const Fp16Config& fp16 = config.fp16;
  if (fp16.enabled && fp16.loss_scale == 0.0 &&
      fp16.min_loss_scale > std::ldexp(1.0, static_cast<int>(fp16.initial_scale_power))) {
    throw ConfigError("fp16.min_loss_scale: above the first scale, 2 to the fp16.initial_scale_power; lower it");
  }
  if (config.aio.block_size % 4096 != 0) {
    throw ConfigError("aio.block_size: wanted a multiple of 4096, got " + std::to_string(config.aio.block_size));
  }
}

/// What goes to NVMe goes to the run's folder where no other is named.
void resolve_nvme_paths(Config& config) {
  const bool wanted = config.zero.offload_optimizer.device == OffloadDevice::kNvme ||
                      (config.has_bank() && config.contrastive.bank.device == OffloadDevice::kNvme) ||
                      config.offload.gradients == OffloadDevice::kNvme;
  if (wanted && config.offload.nvme_paths.empty()) {
    config.offload.nvme_paths = {config.out};
  }
}

/// What a key chooses, whose defaults other keys start from. Anything else than one of `names` is left to the reader,
/// which names it.
template <typename Enum>
std::optional<Enum> read_choice(const Json& root, std::string_view path, std::span<const std::string_view> names) {
  const Json* chosen = find_at(root, path);
  const auto* text = chosen == nullptr ? nullptr : chosen->get_if<std::string>();
  for (std::size_t i = 0; text != nullptr && i < names.size(); ++i) {
    if (same_ignoring_case(names[i], *text)) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

void apply_chosen_defaults(Config& config, const Json& root) {
  if (const auto method = read_choice<Method>(root, "method", method_names())) apply_method_defaults(config, *method);
  if (const auto kind = read_choice<OptimizerKind>(root, "optimizer.type", optimizer_names())) {
    apply_optimizer_defaults(config.optimizer, *kind);
  }
  if (const auto kind = read_choice<SchedulerKind>(root, "scheduler.type", scheduler_names())) {
    apply_scheduler_defaults(config.scheduler, *kind);
  }
}

/// Keys of what the method has not: said, and let go of.
void drop_unused(const Json& root, Config& config, std::vector<std::string>& warnings) {
  ContrastiveConfig& contrastive = config.contrastive;
  const ContrastiveConfig fallback;
  const auto drop = [&](bool has, const char* what, std::initializer_list<const char*> keys) {
    std::vector<std::string> unused;
    for (const char* key : keys) {
      if (!has && find_at(root, key) != nullptr) unused.emplace_back(key);
    }
    if (!unused.empty()) {
      warnings.push_back("without effect, as " + std::string(to_string(config.method)) + " has no " + what + ": " +
                         joined(unused));
    }
    return !has;
  };
  if (drop(config.has_bank(), "bank",
           {"contrastive.queue_size", "contrastive.queue_schedule", "contrastive.exclude_same_class",
            "contrastive.bank"})) {
    contrastive.queue_size = fallback.queue_size;
    contrastive.queue_schedule = {};
    contrastive.exclude_same_class = false;
    contrastive.bank = {};
  }
  if (drop(config.has_batch_negatives(), "negatives in its batch", {"contrastive.accumulation"})) {
    contrastive.accumulation = fallback.accumulation;
  }
  if (drop(config.has_temperature(), "temperature", {"contrastive.learnable_temperature"})) {
    contrastive.learnable_temperature = false;
  }
  if (drop(config.has_momentum_encoder(), "momentum encoder", {"contrastive.momentum_schedule"})) {
    contrastive.momentum_schedule = fallback.momentum_schedule;
  }
}

/// OneCycle moves the first of the betas too, and then fixes the second: where there are none, only the rate.
void drop_unused_cycle(Config& config, std::vector<std::string>& warnings) {
  if (config.scheduler.kind != SchedulerKind::kOneCycle || config.optimizer.is_adam()) return;
  if (config.scheduler.cycle_momentum) {
    warnings.emplace_back("scheduler.params.cycle_momentum: without effect, as this optimizer has no betas");
  }
  config.scheduler.cycle_momentum = false;
}

/// How long the run is: one of the two; five epochs where neither is given.
void resolve_length(Config& config, const Json& root) {
  const bool steps_given = find_at(root, "steps") != nullptr;
  const bool epochs_given = find_at(root, "epochs") != nullptr;
  if (steps_given && epochs_given) {
    throw ConfigError("steps: given beside epochs; keep one of them");
  }
  if ((steps_given && config.steps == 0) || (epochs_given && config.epochs == 0)) {
    throw ConfigError(std::string(steps_given ? "steps" : "epochs") + ": wanted at least 1, got 0");
  }
  config.epochs = steps_given ? 0 : config.epochs;
}

}  // namespace

Override parse_override(std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  const std::string_view key = assignment.substr(0, equals);
  const bool bad_key =
      key.empty() || key.front() == '.' || key.back() == '.' || key.find("..") != std::string_view::npos;
  if (equals == std::string_view::npos || bad_key) {
    throw ConfigError("--set " + shown_name(assignment) + ": wanted key=value, or block.key=value");
  }
  const std::string_view value = assignment.substr(equals + 1);
  try {
    return {std::string(key), parse_json(value, "--set " + shown_name(key))};
  } catch (const ConfigError&) {
    // Text without quotes, which the written configuration must be able to hold: in quotes it has to be JSON.
    static_cast<void>(parse_json(Json(value).dump(), "--set " + shown_name(key)));
    return {std::string(key), Json(value)};
  }
}

ResolvedConfig load_config(const ConfigRequest& request) {
  ResolvedConfig resolved;
  const Json root = merge(request, resolved.warnings);
  Config& config = resolved.config;
  apply_chosen_defaults(config, root);
  const BatchSizes defaults{config.train_batch_size, config.micro_batch_size_per_gpu,
                            config.gradient_accumulation_steps};
  config.train_batch_size = config.micro_batch_size_per_gpu = config.gradient_accumulation_steps = 0;  // Not given.
  ReadingNotes notes;
  ConfigReader reader(*root.get_if<Json::Object>(), "", BlockOwner::kDeepSpeed, request.strict, notes);
  visit_config(reader, config);
  reader.finish();

  const BatchSizes sizes = resolve_batch_sizes(
      {config.train_batch_size, config.micro_batch_size_per_gpu, config.gradient_accumulation_steps},
      request.world_size, defaults.micro);
  config.train_batch_size = sizes.train;
  config.micro_batch_size_per_gpu = sizes.micro;
  config.gradient_accumulation_steps = sizes.accumulation;
  resolve_length(config, root);
  if (config.out.empty()) {
    config.out = "runs/" + std::string(to_string(config.method));
  }
  resolve_nvme_paths(config);
  check_unbuilt(root, config.optimizer);
  check_scheduler(root, config.scheduler);
  check_together(config);
  check_precision(config);
  drop_unused(root, config, resolved.warnings);
  drop_unused_cycle(config, resolved.warnings);
  add_warnings(notes, config.zero.stage, resolved.warnings);
  if (config.zero.stage == 0 && config.shards(request.world_size)) {
    resolved.warnings.emplace_back(
        "zero_optimization.stage: 0 runs as 2: gradients that offload.gradients takes away are sharded over the ranks");
  }
  config.zero.stage = std::min<std::uint64_t>(config.zero.stage, 2);
  return resolved;
}

std::string read_config_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kJsonMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad() || std::filesystem::is_directory(path)) {
    throw IoError({.operation = "read",
                   .path = path.string(),
                   .bytes = 0,
                   .error_number = errno,
                   .advice = "name a readable configuration file"});
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace spillway::app

#include <spillway/app/config/load_config.hpp>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <spillway/app/config/batch_sizes.hpp>
#include <spillway/app/config/config_keys.hpp>
#include <spillway/app/config/config_reader.hpp>
#include <spillway/app/config/json_path.hpp>
#include <spillway/app/config/key_names.hpp>
#include <spillway/app/config/old_spellings.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

void apply_override(Json& root, const Override& change) {
  make_at(root, change.key) = change.value;
  // How long a run is can be said in two ways; the one said last replaces the other.
  if (change.key == "steps" || change.key == "epochs") {
    take_at(root, change.key == "steps" ? "epochs" : "steps");
  }
}

/// Refuses what is known, not built, and would change results in silence if it were passed over.
void check_unbuilt(const Json& root) {
  for (const char* path : {"fp16.enabled", "bf16.enabled", "torch_autocast.enabled"}) {
    const Json* enabled = find_at(root, path);
    if (enabled != nullptr && *enabled == Json(true)) {
      throw ConfigError(std::string(path) + ": this version trains in fp32 alone; set it to false");
    }
    if (enabled != nullptr && *enabled != Json("auto") && *enabled != Json(false)) {
      throw ConfigError(std::string(path) + ": wanted true, false or \"auto\", got " + enabled->describe());
    }
  }
  const Json* scheduler = find_at(root, "scheduler.type");
  if (scheduler != nullptr && *scheduler != Json("none")) {
    throw ConfigError("scheduler.type: wanted \"none\", got " + scheduler->describe() +
                      "; this version trains at a constant learning rate");
  }
  const Json* correction = find_at(root, "optimizer.params.bias_correction");
  if (correction != nullptr && *correction != Json(true)) {
    throw ConfigError("optimizer.params.bias_correction: wanted true, the only form of this version, got " +
                      correction->describe());
  }
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

void add_warnings(const ReadingNotes& notes, std::uint64_t stage, std::uint64_t world_size,
                  std::vector<std::string>& warnings) {
  const bool stage3 = stage == 3;
  warnings.insert(warnings.end(), notes.unknown.begin(), notes.unknown.end());
  if (stage3 || !notes.stage3.empty()) {
    std::string line =
        stage3 ? "zero_optimization.stage: 3 runs as 2: parameters stay resident" : "only stage 3 has these";
    line += notes.stage3.empty() ? "" : "; without effect: " + joined(notes.stage3);
    warnings.push_back(std::move(line));
  }
  if (stage > 0 && world_size > 1) {
    warnings.push_back("zero_optimization.stage: state and gradients are not sharded over ranks in this version");
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
  if (config.data.source.empty()) {
    throw ConfigError("data.source: empty; name mnist5k, digits, synthetic or a path");
  }
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.nesterov && (optimizer.momentum <= 0.0 || optimizer.dampening != 0.0)) {
    throw ConfigError("optimizer.params.nesterov: needs momentum above 0 and dampening 0");
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

/// The method, whose defaults the other keys start from. Anything else than a method is left to the reader, which
/// names it.
Method read_method(const Json& name) {
  const auto* text = name.get_if<std::string>();
  for (std::size_t i = 0; text != nullptr && i < method_names().size(); ++i) {
    if (same_ignoring_case(method_names()[i], *text)) return static_cast<Method>(i);
  }
  return Method::kMoco;
}

/// Keys of a bank that the method has not.
void warn_of_unused_bank(const Json& root, const Config& config, std::vector<std::string>& warnings) {
  std::vector<std::string> unused;
  for (const char* key : {"contrastive.queue_size", "contrastive.bank"}) {
    if (!config.has_bank() && find_at(root, key) != nullptr) unused.emplace_back(key);
  }
  if (!unused.empty()) {
    warnings.push_back("without effect, as " + std::string(to_string(config.method)) +
                       " has no bank: " + joined(unused));
  }
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
  Json root = parse_json(request.text, request.label);
  if (root.get_if<Json::Object>() == nullptr) {
    throw ConfigError(request.label + ": wanted an object, got " + root.describe());
  }
  for (const Override& change : request.overrides) {
    apply_override(root, change);
  }
  ResolvedConfig resolved;
  replace_old_spellings(root, resolved.warnings);
  check_unbuilt(root);

  Config& config = resolved.config;
  if (const Json* name = find_at(root, "method"); name != nullptr) {
    apply_method_defaults(config, read_method(*name));
  }
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
  check_together(config);
  warn_of_unused_bank(root, config, resolved.warnings);
  add_warnings(notes, config.zero.stage, request.world_size, resolved.warnings);
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

#include <spillway/app/cli/train_command.hpp>

#include <unistd.h>

#include <iostream>
#include <utility>

#include <spillway/app/report/progress.hpp>
#include <spillway/app/training/stop_signal.hpp>
#include <spillway/app/training/train.hpp>

namespace spillway::app {
namespace {

/// --set first, then the other flags, which win.
std::vector<Override> overrides_of(const TrainFlags& flags) {
  std::vector<Override> overrides;
  for (const std::string& assignment : flags.set) overrides.push_back(parse_override(assignment));
  const auto add = [&overrides](const char* key, const auto& value) {
    if (value) overrides.push_back({key, Json(*value)});
  };
  add("method", flags.method);
  add("data.source", flags.data);
  add("encoder.name", flags.encoder);
  add("epochs", flags.epochs);
  add("steps", flags.steps);
  add("evaluation.every", flags.eval_every);
  add("out", flags.out);
  add("seed", flags.seed);
  add("zero_optimization.offload_optimizer.device", flags.offload_optimizer);
  add("offload.gradients", flags.offload_gradients);
  add("contrastive.bank.device", flags.offload_bank);
  add("offload.nvme_path", flags.nvme_path);
  add("offload.host_bytes", flags.host_budget_bytes);
  if (flags.deterministic) overrides.push_back({"deterministic", Json(true)});
  return overrides;
}

}  // namespace

ResolvedConfig resolve(const TrainFlags& flags, std::uint64_t world_size) {
  const std::vector<Override> overrides = overrides_of(flags);
  const std::string text = flags.config ? read_config_file(*flags.config) : "{}";
  ConfigRequest request;
  request.text = text;
  if (flags.config) request.label = *flags.config;
  request.overrides = overrides;
  request.strict = flags.strict;
  request.world_size = world_size;
  return load_config(request);
}

int run_train(const TrainFlags& flags) {
  const distributed::RankEnvironment environment = distributed::read_rank_environment();
  const ResolvedConfig resolved = resolve(flags, static_cast<std::uint64_t>(environment.world_size));
  for (const std::string& warning : resolved.warnings) {
    if (environment.rank == 0) std::cout << "warning: " << warning << "\n";
  }

  StopSignal stop;
  const std::optional<unsigned> columns = flags.no_progress ? std::nullopt : terminal_columns(STDOUT_FILENO);
  const InitialPart part = flags.init_part == "encoder" ? InitialPart::kEncoder : InitialPart::kWeights;
  train(resolved.config, {std::cout, columns, &stop, flags.trace, flags.resume, flags.init, part, environment});
  const std::optional<int> signal = stop.received();
  return signal ? 128 + *signal : 0;
}

}  // namespace spillway::app

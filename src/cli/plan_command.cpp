#include <spillway/app/cli/plan_command.hpp>

#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include <ATen/Context.h>

#include <spillway/app/cli/train_command.hpp>
#include <spillway/app/data/dataset.hpp>
#include <spillway/app/training/run_parts.hpp>
#include <spillway/app/training/step_prediction.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::app {
namespace {

using offload::format_bytes;

/// The folder of a run that has not been made yet: the nearest one above it that exists lies on the same disk.
std::string existing(std::filesystem::path folder) {
  folder = std::filesystem::absolute(folder);
  while (!std::filesystem::exists(folder) && folder.has_relative_path()) folder = folder.parent_path();
  return folder.string();
}

struct Plan {
  std::vector<PlacementRow> placement;
  std::vector<std::string> lines;
  OutsideBytes outside;
  std::uint64_t host_used = 0;
  std::uint64_t disk_used = 0;
  std::uint64_t steps = 0;
  RunTraffic traffic;
  StepPrediction prediction;
};

Plan make_plan(const Config& config) {
  const Dataset dataset = load_dataset(config.data, config.seed);
  const RunPlan run(config, dataset.images.train.size());
  RunRanks ranks;
  at::manual_seed(config.seed);
  RunParts parts(config, dataset.images.train, ranks, [](const std::string&) {});
  Plan plan;
  plan.placement = parts.placement();
  plan.outside = parts.outside();
  plan.lines = describe_placement(parts.tiers(), plan.placement, plan.outside);
  plan.host_used = parts.tiers().host().used_bytes();
  plan.disk_used = parts.tiers().disk().used_bytes();
  plan.steps = run.steps();
  plan.traffic = predict_traffic(parts.forecast(), run);
  ProbeOptions options;
  if (parts.tiers().has_disk()) options.folders = config.offload.nvme_paths;
  const MachineProbe probe = probe_machine(options);
  plan.prediction = predict_step(probe, plan.placement, plan.traffic.last, run.rows(run.steps() - 1).size(),
                                 measure_compute_s(parts, run));
  return plan;
}

Json bytes_json(const optimizer::StepBytes& bytes) {
  return Json::Object{{"read_bytes", bytes.read}, {"write_bytes", bytes.written}};
}

Json to_json(const Plan& plan, const Config& config) {
  Json::Array placement;
  for (const PlacementRow& row : plan.placement) {
    placement.push_back(Json::Object{{"owner", row.owner}, {"tier", to_string(row.tier)}, {"bytes", row.bytes}});
  }
  Json::Array links;
  for (const LinkTime& link : plan.prediction.links) {
    links.push_back(Json::Object{{"name", link.name}, {"bytes", link.bytes}, {"seconds", link.seconds}});
  }
  const auto tier = [](std::uint64_t budget, std::uint64_t used) {
    return Json::Object{{"budget_bytes", budget}, {"used_bytes", used}};
  };
  return Json::Object{{"placement", std::move(placement)},
                      {"tiers", Json::Object{{"host", tier(config.offload.host_bytes, plan.host_used)},
                                             {"disk", tier(config.offload.disk_bytes, plan.disk_used)}}},
                      {"parameter_bytes", plan.outside.parameters},
                      {"plain_state_bytes", plan.outside.plain_state},
                      {"steps", plan.steps},
                      {"run", bytes_json(plan.traffic.all)},
                      {"last_step", bytes_json(plan.traffic.last)},
                      {"links", std::move(links)},
                      {"seconds_per_step", plan.prediction.limiting().seconds},
                      {"limiting", plan.prediction.limiting().name}};
}

std::string describe(const Plan& plan) {
  std::string text;
  for (const std::string& line : plan.lines) text += line + "\n";
  text += std::to_string(plan.steps) + " steps; in the last one " + format_bytes(plan.traffic.last.read) +
          " read from disk and " + format_bytes(plan.traffic.last.written) + " written; in the run " +
          format_bytes(plan.traffic.all.read) + " and " + format_bytes(plan.traffic.all.written) + "\n";
  std::array<char, 160> line{};
  for (const LinkTime& link : plan.prediction.links) {
    std::snprintf(line.data(), line.size(), "  %-12s %9.2f ms a step%s%s\n", link.name.c_str(), 1e3 * link.seconds,
                  link.bytes > 0 ? " for " : "", link.bytes > 0 ? format_bytes(link.bytes).c_str() : "");
    text += line.data();
  }
  std::snprintf(line.data(), line.size(), "predicted: %.2f ms a step, limited by %s\n",
                1e3 * plan.prediction.limiting().seconds, plan.prediction.limiting().name.c_str());
  return text + line.data();
}

}  // namespace

int run_plan(const PlanFlags& flags) {
  ResolvedConfig resolved = resolve(flags.train);
  for (const std::string& warning : resolved.warnings) std::cerr << "warning: " << warning << "\n";
  Config& config = resolved.config;
  for (std::string& folder : config.offload.nvme_paths) {
    if (folder == config.out) folder = existing(folder);
  }
  const Plan plan = make_plan(config);
  std::cout << (flags.json ? to_json(plan, config).dump(2) + "\n" : describe(plan));
  return 0;
}

}  // namespace spillway::app

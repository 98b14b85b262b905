#include <spillway/app/training/run_tiers.hpp>

#include <array>
#include <cstdio>
#include <utility>

#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::app {
namespace {

using offload::Tier;

offload::EngineChoice engine_choice(EngineChoice choice) {
  switch (choice) {
    case EngineChoice::kAuto:
      return offload::EngineChoice::kAuto;
    case EngineChoice::kIoUring:
      return offload::EngineChoice::kIoUring;
    case EngineChoice::kThreads:
      return offload::EngineChoice::kThreads;
  }
  return offload::EngineChoice::kAuto;
}

std::string row(const std::string& owner, std::string_view where, const std::string& bytes) {
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), "  %-36s %-5s %12s", owner.c_str(), std::string(where).c_str(),
                bytes.c_str());
  return text.data();
}

std::string limit(const offload::Budget& budget) {
  return budget.limit_bytes() == offload::kUnlimitedBytes ? std::string("no limit")
                                                          : offload::format_bytes(budget.limit_bytes());
}

}  // namespace

std::shared_ptr<offload::Tiers> make_tiers(const Config& config, offload::LogSink log,
                                           std::shared_ptr<offload::Trace> trace) {
  offload::TiersOptions options;
  options.host_bytes = config.offload.host_bytes;
  options.disk_bytes = config.offload.disk_bytes;
  options.engine = engine_choice(config.aio.engine);
  if (config.aio.block_size != 0) {
    options.aio.block_bytes = config.aio.block_size;
  }
  if (config.aio.queue_depth != 0) {
    options.aio.queue_depth = static_cast<unsigned>(config.aio.queue_depth);
  }
  options.tune = config.aio.block_size == 0 && config.aio.queue_depth == 0 && !config.deterministic;
  options.pin_memory = config.zero.offload_optimizer.pin_memory;
  options.log = std::move(log);
  options.trace = std::move(trace);
  const bool disk = config.zero.offload_optimizer.device == OffloadDevice::kNvme ||
                    (config.has_bank() && config.contrastive.bank.device == OffloadDevice::kNvme) ||
                    config.offload.gradients == OffloadDevice::kNvme;
  if (disk) {
    std::vector<std::string> paths;
    for (const std::string& path : config.offload.nvme_paths) {
      paths.insert(paths.end(), config.aio.intra_op_parallelism, path);  // A file and an engine each, striped over.
    }
    // Shares by measured rates would be a choice that a measurement makes; a folder beside itself needs none.
    if (config.deterministic || config.offload.nvme_paths.size() == 1) {
      options.nvme_weights.assign(paths.size(), 1);
    }
    options.nvme_path = std::move(paths);
  }
  return std::make_shared<offload::Tiers>(std::move(options));
}

std::vector<PlacementRow> placement_rows(const queue::BankPlacement& bank, const optimizer::StatePlacement& state,
                                         const optimizer::GradientPlacement& gradients) {
  std::vector<PlacementRow> rows{{"optimizer state, resident", Tier::kHost, state.resident_bytes},
                                 {"optimizer state, staging buffers", Tier::kHost, state.ring_bytes},
                                 {"optimizer state, streamed", Tier::kDisk, state.disk_bytes},
                                 {"gradients", Tier::kHost, gradients.host_bytes},
                                 {"gradients, streamed", Tier::kDisk, gradients.disk_bytes},
                                 {"bank, newest segments", Tier::kHost, bank.resident_bytes},
                                 {"bank, staging buffers", Tier::kHost, bank.ring_bytes},
                                 {"bank, tile of a scan", Tier::kHost, bank.tile_bytes},
                                 {"bank, labels", Tier::kHost, bank.label_bytes},
                                 {"bank, checksums of pages", Tier::kHost, bank.sum_bytes},
                                 {"bank, cold segments", Tier::kDisk, bank.disk_bytes}};
  std::erase_if(rows, [](const PlacementRow& row) { return row.bytes == 0; });
  return rows;
}

std::vector<std::string> describe_placement(offload::Tiers& tiers, const std::vector<PlacementRow>& rows,
                                            const OutsideBytes& outside) {
  std::vector<std::string> lines = {row("placed", "tier", "bytes")};
  for (const PlacementRow& placed : rows) {
    lines.push_back(row(placed.owner, to_string(placed.tier), offload::format_bytes(placed.bytes)));
  }
  lines.push_back(row("together, of " + limit(tiers.host()), to_string(Tier::kHost),
                      offload::format_bytes(tiers.host().used_bytes())));
  if (tiers.has_disk()) {
    lines.push_back(row("together, of " + limit(tiers.disk()), to_string(Tier::kDisk),
                        offload::format_bytes(tiers.disk().used_bytes())));
  }
  lines.push_back(
      row("other: parameters, in no budget", to_string(Tier::kHost), offload::format_bytes(outside.parameters)));
  if (outside.plain_state != 0) {
    lines.push_back(row("other: optimizer state, in no budget", to_string(Tier::kHost),
                        offload::format_bytes(outside.plain_state)));
  }
  return lines;
}

}  // namespace spillway::app

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <spillway/app/config/config.hpp>
#include <spillway/offload/tiers.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>
#include <spillway/queue/bank_plan.hpp>

namespace spillway::app {

/// Memory and disk of a run, shared by optimizer and bank. There is a disk where something is to go to it.
/// @throws IoError for a folder that is missing or not writable, or an engine that is forced and does not work.
[[nodiscard]] std::shared_ptr<offload::Tiers> make_tiers(const Config& config, offload::LogSink log,
                                                         std::shared_ptr<offload::Trace> trace = nullptr);

/// One owner's bytes on one tier.
struct PlacementRow {
  std::string owner;
  offload::Tier tier = offload::Tier::kHost;
  std::uint64_t bytes = 0;
};

/// Where everything is placed. Rows of no bytes are left out.
[[nodiscard]] std::vector<PlacementRow> placement_rows(const queue::BankPlacement& bank,
                                                       const optimizer::StatePlacement& state,
                                                       const optimizer::GradientPlacement& gradients = {});

/// The same as a table of owner, tier and bytes, with what is used of each budget: one line an element.
/// @param parameter_bytes  Of the trained network, which LibTorch holds and no budget counts.
[[nodiscard]] std::vector<std::string> describe_placement(offload::Tiers& tiers, const std::vector<PlacementRow>& rows,
                                                          std::uint64_t parameter_bytes);

}  // namespace spillway::app

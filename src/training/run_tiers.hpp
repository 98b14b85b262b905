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

/// Host memory that LibTorch holds and no budget counts.
struct OutsideBytes {
  std::uint64_t parameters = 0;   ///< Of the trained network.
  std::uint64_t plain_state = 0;  ///< Of the optimizer where its state is not offloaded, from the first step on.
};

/// The same as a table of owner, tier and bytes, with what is used of each budget: one line an element.
[[nodiscard]] std::vector<std::string> describe_placement(offload::Tiers& tiers, const std::vector<PlacementRow>& rows,
                                                          const OutsideBytes& outside);

}  // namespace spillway::app

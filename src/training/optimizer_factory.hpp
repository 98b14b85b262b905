#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/offload/tiers.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>

namespace spillway::app {

/// The optimizer that a configuration describes over `parameters` (one group), with its state where the configuration
/// wants it. Takes what the tiers' host budget has left: make it after the bank.
/// @throws what wrap() throws.
[[nodiscard]] std::unique_ptr<optimizer::Optimizer> make_optimizer(const Config& config,
                                                                   std::vector<at::Tensor> parameters,
                                                                   std::shared_ptr<offload::Tiers> tiers);

}  // namespace spillway::app

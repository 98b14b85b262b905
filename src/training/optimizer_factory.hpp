#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/app/training/lr_schedule.hpp>
#include <spillway/offload/tiers.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>

namespace spillway::distributed {
class Collective;
}

namespace spillway::app {

/// How many tensors of a parameter's size the optimizer keeps beside it.
[[nodiscard]] std::uint64_t state_tensor_count(const OptimizerConfig& config) noexcept;

/// What an optimizer trains: with the configuration's weight decay, and without any.
struct OptimizedParameters {
  OptimizedParameters() = default;
  OptimizedParameters(std::vector<at::Tensor> all) : decayed(std::move(all)) {}  // NOLINT(*-explicit-*): mostly it is.

  std::vector<at::Tensor> decayed{};
  std::vector<at::Tensor> undecayed{};
};

/// Two groups over the ranks of a run, used for nothing else, where they have shares of state and gradients
/// (Config::shards). Null, both: this rank has all.
struct GradientGroups {
  distributed::Collective* exchange = nullptr;
  distributed::Collective* agreement = nullptr;
};

/// The optimizer that a configuration describes over `parameters` (a group each where there are any), with its state
/// where the configuration wants it. Takes what the tiers' host budget has left: make it after the bank.
/// @throws what wrap() throws; BudgetExceeded where more of the state would be on NVMe than
/// zero_optimization.offload_optimizer.ratio allows.
/// With `groups`, which outlive the optimizer, gradients are taken: those that stay in place otherwise to host memory.
[[nodiscard]] std::unique_ptr<optimizer::Optimizer> make_optimizer(const Config& config, OptimizedParameters parameters,
                                                                   std::shared_ptr<offload::Tiers> tiers,
                                                                   const GradientGroups& groups = {});

/// Sets what a schedule says for the next step, in all groups. Betas are passed over where the optimizer has none.
void set_rate(optimizer::Optimizer& optimizer, const ScheduledRate& rate);

}  // namespace spillway::app

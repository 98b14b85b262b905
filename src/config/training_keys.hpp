#pragma once

#include <span>
#include <string_view>

#include <spillway/app/config/block_visitor.hpp>
#include <spillway/app/config/config.hpp>

namespace spillway::app {

/// The blocks of DeepSpeed's that say how weights are updated: `optimizer`, `scheduler`, `fp16`, `bf16`,
/// `torch_autocast`. Which params an optimizer or a scheduler has depends on its type, which is visited first.
void visit_training(BlockVisitor& visitor, Config& config);

/// As the configuration spells it.
[[nodiscard]] std::string_view to_string(SchedulerKind kind) noexcept;
[[nodiscard]] std::span<const std::string_view> optimizer_names() noexcept;
[[nodiscard]] std::span<const std::string_view> scheduler_names() noexcept;

/// Sets the type, and the params whose default depends on it: to LibTorch's for an optimizer, to DeepSpeed's for a
/// scheduler.
void apply_optimizer_defaults(OptimizerConfig& config, OptimizerKind kind) noexcept;
void apply_scheduler_defaults(SchedulerConfig& config, SchedulerKind kind) noexcept;

}  // namespace spillway::app

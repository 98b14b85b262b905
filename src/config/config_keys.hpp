#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <spillway/app/config/block_visitor.hpp>
#include <spillway/app/config/config.hpp>

namespace spillway::app {

/// Passes `visitor` over every key that has an effect.
void visit_config(BlockVisitor& visitor, Config& config);

/// As the configuration spells it.
[[nodiscard]] std::string_view to_string(Method method) noexcept;
[[nodiscard]] std::span<const std::string_view> method_names() noexcept;

/// Sets `method` and the keys of `contrastive` whose default depends on it, to what its authors took for small images.
void apply_method_defaults(Config& config, Method method) noexcept;

enum class InertKind : std::uint8_t { kBlock, kBoolean, kInteger, kNumber, kText, kNumbers, kTexts };

/// When a key without effect is named in a warning.
enum class InertNotice : std::uint8_t {
  kNever,          ///< It asks for what happens anyway, or can't change what a run gives.
  kUnlessDefault,  ///< Where its value is not its default.
  kAlways,         ///< Whatever its value; for a block, unless its `enabled` is false.
  kOfStageThree,   ///< In the one warning for all keys of stage 3; a switch unless it has its default.
};

/// A key of DeepSpeed's that is understood and has no effect, or none yet. Its type is checked.
struct InertKey {
  std::string_view path;  ///< From the top: "zero_optimization.overlap_comm".
  InertKind kind = InertKind::kBlock;
  InertNotice notice = InertNotice::kAlways;
  std::string_view fallback{};  ///< DeepSpeed's default, as JSON; empty where it has none.
};
[[nodiscard]] std::span<const InertKey> inert_keys() noexcept;

/// Whether a key at the top level is one of ours, where DeepSpeed has none.
[[nodiscard]] bool is_own_top_level_key(std::string_view key) noexcept;

}  // namespace spillway::app

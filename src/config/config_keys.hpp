#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <spillway/app/config/block_visitor.hpp>
#include <spillway/app/config/config.hpp>

namespace spillway::app {

/// Passes `visitor` over every key that has an effect. Which keys an optimizer has depends on its type, which is
/// visited first.
void visit_config(BlockVisitor& visitor, Config& config);

/// As the configuration spells it.
[[nodiscard]] std::string_view to_string(Method method) noexcept;
[[nodiscard]] std::span<const std::string_view> method_names() noexcept;

/// Sets `method` and the keys of `contrastive` whose default depends on it, to what its authors took for small images.
void apply_method_defaults(Config& config, Method method) noexcept;

/// A key of DeepSpeed's that is understood and has no effect, or none yet.
struct InertKey {
  std::string_view path;      ///< From the top: "zero_optimization.overlap_comm".
  std::string_view harmless;  ///< Value, as JSON, at which nothing need be said: what happens anyway. "*": any value.
  bool stage3 = false;        ///< Belongs to stage 3, whose keys share one warning.
};
[[nodiscard]] std::span<const InertKey> inert_keys() noexcept;

/// Whether a key at the top level is one of ours, where DeepSpeed has none.
[[nodiscard]] bool is_own_top_level_key(std::string_view key) noexcept;

}  // namespace spillway::app

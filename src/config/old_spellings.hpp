#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <spillway/app/config/json.hpp>

namespace spillway::app {

/// Rewrites keys that DeepSpeed has replaced, or that we keep in one place for several users, so that the reader meets
/// one spelling: moved_keys(). The optimizer's nvme_path becomes offload.nvme_path where that is not given.
/// @throws ConfigError where both spellings are there and contradict one another, or one has the wrong type.
void replace_old_spellings(Json& root, std::vector<std::string>& warnings);

/// Where a key goes, as dotted paths.
struct MovedKey {
  std::string_view from;
  std::string_view to;
};
[[nodiscard]] std::span<const MovedKey> moved_keys() noexcept;

}  // namespace spillway::app

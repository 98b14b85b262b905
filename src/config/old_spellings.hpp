#pragma once

#include <string>
#include <vector>

#include <spillway/app/config/json.hpp>

namespace spillway::app {

/// Rewrites keys that DeepSpeed has replaced, or that we keep in one place for several users, so that the reader meets
/// one spelling: zero_optimization.cpu_offload and cpu_offload_use_pin_memory, optimizer.params.max_grad_norm, and the
/// optimizer's nvme_path, which becomes offload.nvme_path where that is not given.
/// @throws ConfigError where both spellings are there and contradict one another, or one has the wrong type.
void replace_old_spellings(Json& root, std::vector<std::string>& warnings);

}  // namespace spillway::app

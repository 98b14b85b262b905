#pragma once

#include <filesystem>

#include "distributed/eight_weights.hpp"

namespace spillway::test {

/// Makes the 8-weight example's optimizer with its momentum in a swap file in `nvme_path`.
MakeOptimizer sgd_with_state_on_nvme(const std::filesystem::path& nvme_path);

}  // namespace spillway::test

#pragma once

#include <spillway/app/config/config.hpp>
#include <support/temp_dir.hpp>

namespace spillway::test {

/// A run of 21 steps on synthetic images; its optimizer state and most of its bank are on disk, in `folder`, where the
/// run's folder is too ("run").
[[nodiscard]] app::Config streamed_config(const TempDir& folder);

}  // namespace spillway::test

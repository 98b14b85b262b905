#pragma once

#include <cstdint>

#include <spillway/app/cli/command_line.hpp>
#include <spillway/app/config/load_config.hpp>

namespace spillway::app {

/// The configuration that file and flags come to on so many ranks. @throws as read_config_file and load_config.
[[nodiscard]] ResolvedConfig resolve(const TrainFlags& flags, std::uint64_t world_size = 1);

/// `spillway train`: one rank of as many as the launcher's variables say. What it says goes to standard output.
/// @returns the exit status: 0, or 128 + the signal that it was stopped by. @throws as load_config and train().
int run_train(const TrainFlags& flags);

}  // namespace spillway::app

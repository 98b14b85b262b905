#pragma once

#include <spillway/app/cli/command_line.hpp>

namespace spillway::app {

/// `spillway train`. What it says goes to standard output. @returns the exit status: 0, or 128 + the signal that it
/// was stopped by. @throws as load_config and train().
int run_train(const TrainFlags& flags);

}  // namespace spillway::app

#pragma once

#include <spillway/app/cli/command_line.hpp>

namespace spillway::app {

/// `spillway eval`: how well a checkpoint's encoder tells classes apart. What it says goes to standard output.
/// @throws Error where there is no whole checkpoint, or it is of no such encoder; what reading the images throws.
int run_eval(const EvalFlags& flags);

}  // namespace spillway::app

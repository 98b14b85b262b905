#pragma once

#include <spillway/app/cli/command_line.hpp>

namespace spillway::app {

/// `spillway plan`: where `spillway train` with the same flags would place everything, what its steps would move, and
/// how long one would take; on standard output. Takes memory and swap space as a run does, and gives them back.
/// @returns the exit status, 0. @throws what train() throws before its first step: a plan that can't be held fails here
/// as it would there.
int run_plan(const PlanFlags& flags);

}  // namespace spillway::app

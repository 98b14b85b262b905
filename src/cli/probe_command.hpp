#pragma once

#include <spillway/app/cli/command_line.hpp>

namespace spillway::app {

/// `spillway probe`: what this machine has and how fast each link is, on standard output. @returns the exit status, 0.
/// @throws as probe_machine.
int run_probe(const ProbeFlags& flags);

}  // namespace spillway::app

#pragma once

#include <spillway/app/cli/command_line.hpp>

namespace spillway::app {

/// `spillway inspect`: what is in a checkpoint, by its manifest and the headers of its files, on standard output.
/// @returns the exit status, 0. @throws Error for what is no checkpoint; FormatError, IoError.
int run_inspect(const InspectFlags& flags);

/// `spillway verify`: reads a checkpoint, or all those of a run, and says on standard output which are whole and what
/// is damaged in the others. @returns the exit status: 1 where one is damaged. @throws Error where there is none.
int run_verify(const VerifyFlags& flags);

/// `spillway export`: weights and running statistics of a checkpoint's encoder and head, in a file that is new.
/// @returns the exit status, 0. @throws Error where there is no whole checkpoint; IoError.
int run_export(const ExportFlags& flags);

}  // namespace spillway::app

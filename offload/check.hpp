#pragma once

#include <source_location>

namespace spillway {

/// Ends the process with the expression and its place: a programmer's error, never user input.
[[noreturn]] void check_failed(const char* expression, const char* message,
                               std::source_location where = std::source_location::current()) noexcept;

}  // namespace spillway

/// Always on, in release too. For invariants that only a bug in Spillway or a misuse of its interface can break.
#define SPILLWAY_CHECK(expression, message) \
  ((expression) ? static_cast<void>(0) : ::spillway::check_failed(#expression, message))

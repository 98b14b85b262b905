#pragma once

#include <cstdio>
#include <string>

namespace spillway::app {

// For offload::LogSink: what is said once is not said again in each round.
inline void say_on_stderr(const std::string& line) { std::fprintf(stderr, "spillway: %s\n", line.c_str()); }
inline void say_nothing(const std::string& /*line*/) {}

}  // namespace spillway::app

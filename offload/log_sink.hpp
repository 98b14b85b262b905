#pragma once

#include <functional>
#include <string>

namespace spillway::offload {

/// Takes lines for the user: warnings and the choices made at start-up. Called from the constructing thread only.
using LogSink = std::function<void(const std::string&)>;

}  // namespace spillway::offload

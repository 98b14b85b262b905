#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <spillway/distributed/collective.hpp>

namespace spillway::distributed {

/// A group whose ranks are threads of this process, for tests: the same calls, checks, results and errors as over Gloo,
/// without processes and sockets. Element r is rank r's end, to be used by one thread. Destroying an end is that rank's
/// death. @param timeout  deadline of every call.
[[nodiscard]] std::vector<std::unique_ptr<Collective>> make_thread_group(int world_size,
                                                                         std::chrono::milliseconds timeout);

}  // namespace spillway::distributed

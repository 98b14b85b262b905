#pragma once

#include <functional>
#include <memory>
#include <string>

#include <spillway/offload/storage_engine.hpp>

namespace spillway::offload {

enum class EngineChoice : std::uint8_t { kAuto, kIoUring, kThreads };

/// Takes lines for the user: warnings and the choices made at start-up. Called from the constructing thread only.
using LogSink = std::function<void(const std::string&)>;

/// Makes the engine for files under `folder`: decided once, with real I/O (write, read back, compare) on a nameless
/// file there. kAuto takes io_uring where that works, else the thread pool, and logs one line with the reason.
/// @throws IoError if an engine is forced and does not work, naming the reason and what to do; results never depend
/// on the choice.
[[nodiscard]] std::unique_ptr<StorageEngine> make_engine(EngineChoice choice, const EngineOptions& options,
                                                         const std::string& folder, const LogSink& log);

}  // namespace spillway::offload

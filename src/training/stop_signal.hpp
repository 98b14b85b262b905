#pragma once

#include <optional>

namespace spillway::app {

/// Turns the first SIGINT or SIGTERM into a request that a training loop sees between two steps; a second one of the
/// same kind ends the process as usual. One object at a time: it owns the process's handlers of both signals and puts
/// the former ones back when it dies.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// The signal that has come, if one has. Any thread.
  [[nodiscard]] std::optional<int> received() const noexcept;
  /// As if `signal` had come: another rank of the run got it.
  void remember(int signal) noexcept;
};

}  // namespace spillway::app

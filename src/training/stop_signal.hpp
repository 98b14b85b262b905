#pragma once

#include <optional>

namespace spillway::app {

/// Turns the first SIGINT, SIGTERM or SIGHUP (which counts as SIGTERM, and stays ignored where nohup wants that) into a
/// request that a training loop sees between two steps; a second one of any of them ends the process at once. SIGPIPE
/// is ignored: a reader of the output who went away is no reason to lose a run. One object at a time: it owns the
/// process's handlers of these signals and puts the former ones back when it dies.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// SIGINT or SIGTERM, if one has come here or to another rank. Any thread.
  [[nodiscard]] std::optional<int> received() const noexcept;
  /// Another rank of the run got it.
  void remember(int signal) noexcept;
};

}  // namespace spillway::app

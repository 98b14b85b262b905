#pragma once

#include <string>

#include <spillway/app/bench/adam_sides.hpp>
#include <spillway/app/bench/peer_process.hpp>

namespace spillway::app {

/// Steps of DeepSpeed's CPUAdam over weights in host memory. Runs in a process of its own.
class CpuAdamPeer {
 public:
  /// Why it can't be run; empty where it can be tried.
  [[nodiscard]] static std::string unavailable(const std::string& peers_folder);
  /// @throws Error, with what it says, if it does not start.
  explicit CpuAdamPeer(const std::string& peers_folder);

  [[nodiscard]] const std::string& name() const noexcept { return process_.name(); }
  /// Weights of bench_weights(), with new state. @throws Error.
  void start(const AdamCase& about);
  /// Millions of elements a second in a step. Precondition: started. @throws Error.
  [[nodiscard]] double rate();
  /// The mean of the weights' absolute values. @throws Error.
  [[nodiscard]] double mean_abs();

 private:
  PeerProcess process_;
  double numel_ = 0.0;
};

}  // namespace spillway::app

#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace spillway::offload {

/// One oneTBB arena for each memory node. The one source that includes oneTBB is compiled without thread sanitizer: the
/// library itself is not instrumented, so what its headers inline would be reported for nothing. Callers publish with
/// release before and acquire after.
class ParallelArenas {
 public:
  /// @param threads at least 1, shared among the nodes. @param nodes 0 for those of the machine.
  ParallelArenas(unsigned threads, unsigned nodes);
  ~ParallelArenas();

  /// Runs body(0) … body(count - 1), each node a contiguous share; blocks. @throws the first exception of a body.
  void run(std::uint64_t count, const std::function<void(std::uint64_t)>& body);
  [[nodiscard]] unsigned nodes() const noexcept;

  /// Cores that this process may use.
  [[nodiscard]] static unsigned usable_threads() noexcept;

 private:
  struct Node;
  std::unique_ptr<Node[]> nodes_;
  unsigned count_ = 0;
};

}  // namespace spillway::offload

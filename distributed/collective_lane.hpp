#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>

namespace spillway::offload {
class CopyStream;
}

namespace spillway::distributed {

/// Runs calls of collectives in order on one thread of its own, beside the thread that computes. The groups that its
/// tasks use are used by nobody else, so that all ranks make their calls in the order of submission. What a task throws
/// is kept: the tasks behind it are passed over, and whoever waits gets it. Thread-safe.
class CollectiveLane {
 public:
  CollectiveLane();
  CollectiveLane(const CollectiveLane&) = delete;
  CollectiveLane& operator=(const CollectiveLane&) = delete;
  /// Waits for what is queued: with ranks that are gone, not longer than one call's deadline.
  ~CollectiveLane();

  /// Queues a task and returns at once. It must not use the lane.
  void submit(std::function<void()> task);
  /// Blocks until every task that was submitted before has ended. @throws the first exception of a task, each time.
  void wait();

 private:
  void run(const std::function<void()>& task);

  std::mutex mutex_;
  std::exception_ptr failure_;                   // Of the first task that threw; guarded by the mutex.
  std::unique_ptr<offload::CopyStream> worker_;  // Last: its thread uses the above.
};

}  // namespace spillway::distributed

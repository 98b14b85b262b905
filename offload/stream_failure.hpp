#pragma once

#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <utility>

namespace spillway::offload {

/// The first exception of a stream's tasks and where in the stream it happened, so that an event throws what came
/// before it and nothing else. Shared by a stream, its queued tasks and its events. Thread-safe.
class StreamFailure {
 public:
  /// The failure of the task at `position`. Only the first counts: tasks of a stream end in order.
  void set(std::uint64_t position, std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      position_ = position;
      failure_ = std::move(failure);
    }
  }
  /// Throws if a task before `position` failed.
  void rethrow_before(std::uint64_t position) const {
    std::exception_ptr failure;
    {
      const std::lock_guard lock(mutex_);
      if (position_ < position) {
        failure = failure_;
      }
    }
    if (failure) {
      std::rethrow_exception(failure);
    }
  }

 private:
  mutable std::mutex mutex_;
  std::uint64_t position_ = std::numeric_limits<std::uint64_t>::max();
  std::exception_ptr failure_;
};

}  // namespace spillway::offload

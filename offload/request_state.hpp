#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include <spillway/offload/transfer.hpp>

namespace spillway::offload {

/// What a ticket refers to: whether one transfer has ended, how, and who wants to know. Made by engines and by
/// decorators of engines. Thread-safe.
class RequestState {
 public:
  /// Runs on the thread that ends the transfer, without a lock held; must not throw. Null: it succeeded.
  using Continuation = std::function<void(const FailurePtr& failure)>;

  /// What to name in the message of a wait that timed out, instead of the whole: what is slow, where that is known.
  using Pending = std::function<IoFailure(IoFailure subject)>;

  /// @param subject  operation, path, offset and bytes, for the message of a wait that times out.
  explicit RequestState(IoFailure subject, Pending pending = {})
      : subject_(std::move(subject)), pending_(std::move(pending)) {}

  [[nodiscard]] bool done() const noexcept;
  /// When it ended; the clock's start where it has not.
  [[nodiscard]] std::chrono::steady_clock::time_point ended_at() const noexcept;
  /// See Ticket::wait.
  void wait(std::chrono::milliseconds deadline) const;
  /// See Ticket::settle.
  void settle() const noexcept;

  /// Ends the transfer, once: wakes those who wait and runs the continuations. What the ending thread did before is
  /// visible to whoever sees the transfer done.
  void finish(const FailurePtr& failure);
  /// Calls `continuation` when the transfer ends, at once if it has.
  void when_done(Continuation continuation);

 private:
  [[noreturn]] void throw_timed_out(std::chrono::milliseconds deadline) const;

  const IoFailure subject_;
  const Pending pending_;
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  bool done_ = false;
  std::chrono::steady_clock::time_point ended_at_{};
  FailurePtr failure_;
  std::vector<Continuation> continuations_;
};

}  // namespace spillway::offload

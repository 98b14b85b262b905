#include <spillway/offload/request_state.hpp>

#include <string>
#include <utility>

#include <spillway/offload/check.hpp>

namespace spillway::offload {

bool RequestState::done() const noexcept {
  const std::lock_guard lock(mutex_);
  return done_;
}

std::chrono::steady_clock::time_point RequestState::ended_at() const noexcept {
  const std::lock_guard lock(mutex_);
  return ended_at_;
}

void RequestState::wait(std::chrono::milliseconds deadline) const {
  std::unique_lock lock(mutex_);
  if (!ended_.wait_for(lock, deadline, [this] { return done_; })) {
    lock.unlock();
    throw_timed_out(deadline);
  }
  if (failure_) {
    throw_io_failure(*failure_);
  }
}

void RequestState::throw_timed_out(std::chrono::milliseconds deadline) const {
  const IoFailure slow = pending_ ? pending_(subject_) : subject_;
  throw TimedOut("the " + slow.operation + " of " + std::to_string(slow.bytes) + " bytes at offset " +
                 std::to_string(slow.offset) + " in " + slow.path + " has not ended within " +
                 std::to_string(deadline.count()) + " ms and is still running; check the disk for faults or overload");
}

void RequestState::settle() const noexcept {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return done_; });
}

void RequestState::finish(const FailurePtr& failure) {
  std::vector<Continuation> continuations;
  {
    const std::lock_guard lock(mutex_);
    SPILLWAY_CHECK(!done_, "a transfer ends once");
    done_ = true;
    ended_at_ = std::chrono::steady_clock::now();
    failure_ = failure;
    continuations.swap(continuations_);
    ended_.notify_all();
  }
  for (const Continuation& continuation : continuations) {
    continuation(failure);
  }
}

void RequestState::when_done(Continuation continuation) {
  FailurePtr failure;
  {
    const std::lock_guard lock(mutex_);
    if (!done_) {
      continuations_.push_back(std::move(continuation));
      return;
    }
    failure = failure_;
  }
  continuation(failure);
}

}  // namespace spillway::offload

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include <spillway/offload/check.hpp>
#include <spillway/offload/copy_room.hpp>
#include <spillway/offload/copy_stream.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/stream_failure.hpp>

namespace spillway::offload {
namespace {

class HostEvent final : public Event {
 public:
  HostEvent(std::shared_ptr<const StreamFailure> failure, std::uint64_t position)
      : failure_(std::move(failure)), position_(position) {}

  [[nodiscard]] bool done() const override {
    {
      const std::lock_guard lock(mutex_);
      if (!done_) {
        return false;
      }
    }
    failure_->rethrow_before(position_);
    return true;
  }

  void synchronize() const override {
    settle();
    failure_->rethrow_before(position_);
  }

  void settle() const {
    std::unique_lock lock(mutex_);
    reached_.wait(lock, [this] { return done_; });
  }

  void reach() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    reached_.notify_all();
  }

 private:
  const std::shared_ptr<const StreamFailure> failure_;
  const std::uint64_t position_;
  mutable std::mutex mutex_;
  mutable std::condition_variable reached_;
  bool done_ = false;
};

class HostStream final : public CopyStream {
 public:
  explicit HostStream(unsigned delay_seed)
      : delays_(delay_seed), delayed_(delay_seed != 0), worker_([this](const std::stop_token& stop) { work(stop); }) {}

  void copy(std::span<std::byte> destination, std::span<const std::byte> source) override {
    require_room(destination, source);
    if (!source.empty()) {
      run([destination, source] { std::memcpy(destination.data(), source.data(), source.size()); });
    }
  }

  void run(std::function<void()> task) override {
    const std::lock_guard lock(mutex_);
    push(std::move(task));
  }

  [[nodiscard]] std::shared_ptr<Event> record() override {
    const std::lock_guard lock(mutex_);
    auto event = std::make_shared<HostEvent>(failure_, queued_);
    push([event] { event->reach(); });
    return event;
  }

  void wait(const std::shared_ptr<Event>& event) override {
    auto other = std::dynamic_pointer_cast<HostEvent>(event);
    if (other == nullptr) {
      throw Error("a host stream can only wait for an event of a host stream");
    }
    run([other = std::move(other)] { other->settle(); });
  }

 private:
  struct Task {
    std::uint64_t position;
    std::function<void()> body;
  };

  // With the mutex held.
  void push(std::function<void()> body) {
    tasks_.push_back({queued_, std::move(body)});
    ++queued_;
    queued_one_.notify_one();
  }

  // Ends when it was asked to stop and nothing is queued any more.
  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (queued_one_.wait(lock, stop, [this] { return !tasks_.empty(); })) {
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      pause();
      try {
        task.body();
      } catch (...) {
        failure_->set(task.position, std::current_exception());
      }
      task.body = nullptr;  // What it holds is destroyed without the lock, too.
      lock.lock();
    }
  }

  void pause() {
    if (delayed_) {
      std::this_thread::sleep_for(std::chrono::microseconds(delays_() % 300));
    }
  }

  const std::shared_ptr<StreamFailure> failure_ = std::make_shared<StreamFailure>();
  std::mutex mutex_;
  std::condition_variable_any queued_one_;
  std::deque<Task> tasks_;
  std::uint64_t queued_ = 0;  // Tasks ever queued: the position of the next.
  std::minstd_rand delays_;   // Used by the worker alone.
  const bool delayed_;
  std::jthread worker_;  // Last: it uses all of the above.
};

}  // namespace

std::unique_ptr<CopyStream> make_host_stream(unsigned delay_seed) { return std::make_unique<HostStream>(delay_seed); }

}  // namespace spillway::offload

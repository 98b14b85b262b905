#include <spillway/distributed/collective_lane.hpp>

#include <utility>

#include <spillway/offload/copy_stream.hpp>

namespace spillway::distributed {

CollectiveLane::CollectiveLane() : worker_(offload::make_host_stream()) {}

CollectiveLane::~CollectiveLane() = default;

void CollectiveLane::submit(std::function<void()> task) {
  worker_->run([this, task = std::move(task)] { run(task); });
}

void CollectiveLane::run(const std::function<void()>& task) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      return;
    }
  }
  try {
    task();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
  }
}

void CollectiveLane::wait() {
  worker_->record()->synchronize();
  const std::lock_guard lock(mutex_);
  if (failure_) {
    std::rethrow_exception(failure_);
  }
}

}  // namespace spillway::distributed

#include <cuda_runtime_api.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <spillway/offload/copy_room.hpp>
#include <spillway/offload/copy_stream.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/stream_failure.hpp>

namespace spillway::offload {
namespace {

void check(cudaError_t status, const char* action) {
  if (status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // Else the next call of somebody else reports it again.
    throw Error(std::string("CUDA: ") + action + " failed: " + cudaGetErrorString(status) + " (" +
                cudaGetErrorName(status) + ")");
  }
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  return device;
}

// Makes a device current for the calling thread, and the former one again when it dies.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) : former_(current_device()) {
    if (former_ != device) {
      check(cudaSetDevice(device), "selecting a device");
    }
  }
  ~DeviceGuard() { static_cast<void>(cudaSetDevice(former_)); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  const int former_;
};

// Events of one device, used again and again: making one costs more than recording it. Thread-safe.
class EventPool {
 public:
  explicit EventPool(int device) : device_(device) {}
  ~EventPool() {
    for (cudaEvent_t event : unused_) {
      static_cast<void>(cudaEventDestroy(event));
    }
  }
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  [[nodiscard]] cudaEvent_t take() {
    const std::lock_guard lock(mutex_);
    if (!unused_.empty()) {
      cudaEvent_t event = unused_.back();
      unused_.pop_back();
      return event;
    }
    unused_.reserve(++made_);  // So that give_back() can't run out of memory.
    const DeviceGuard guard(device_);
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    return event;
  }

  void give_back(cudaEvent_t event) noexcept {
    const std::lock_guard lock(mutex_);
    unused_.push_back(event);
  }

 private:
  const int device_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> unused_;
  std::size_t made_ = 0;
};

class CudaEvent final : public Event {
 public:
  CudaEvent(std::shared_ptr<EventPool> pool, std::shared_ptr<const StreamFailure> failure, std::uint64_t position)
      : pool_(std::move(pool)), failure_(std::move(failure)), position_(position), event_(pool_->take()) {}
  ~CudaEvent() override { pool_->give_back(event_); }

  [[nodiscard]] bool done() const override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      return false;
    }
    check(status, "asking whether an event is done");
    failure_->rethrow_before(position_);
    return true;
  }

  void synchronize() const override {
    check(cudaEventSynchronize(event_), "waiting for an event");
    failure_->rethrow_before(position_);
  }

  [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }

 private:
  const std::shared_ptr<EventPool> pool_;  // Shared: events may outlive their stream.
  const std::shared_ptr<const StreamFailure> failure_;
  const std::uint64_t position_;
  cudaEvent_t event_;
};

struct HostTask {
  std::function<void()> body;
  std::shared_ptr<StreamFailure> failure;
  std::uint64_t position;
};

void run_host_task(void* argument) {
  const std::unique_ptr<HostTask> task(static_cast<HostTask*>(argument));
  try {
    task->body();
  } catch (...) {
    task->failure->set(task->position, std::current_exception());
  }
}

class CudaStream final : public CopyStream {
 public:
  CudaStream() : device_(current_device()), pool_(std::make_shared<EventPool>(device_)) {
    int least = 0;
    int greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for the priorities of streams");
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "making a stream");
  }
  ~CudaStream() override {
    static_cast<void>(cudaStreamSynchronize(stream_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }

  void copy(std::span<std::byte> destination, std::span<const std::byte> source) override {
    require_room(destination, source);
    if (source.empty()) {
      return;
    }
    const DeviceGuard guard(device_);
    check(cudaMemcpyAsync(destination.data(), source.data(), source.size(), cudaMemcpyDefault, stream_),
          "queueing a copy");
  }

  void run(std::function<void()> task) override {
    const std::lock_guard lock(mutex_);
    auto queued = std::make_unique<HostTask>(HostTask{std::move(task), failure_, queued_tasks_});
    const DeviceGuard guard(device_);
    check(cudaLaunchHostFunc(stream_, run_host_task, queued.get()), "queueing a host function");
    static_cast<void>(queued.release());  // run_host_task owns it now.
    ++queued_tasks_;
  }

  [[nodiscard]] std::shared_ptr<Event> record() override {
    const std::lock_guard lock(mutex_);
    auto event = std::make_shared<CudaEvent>(pool_, failure_, queued_tasks_);
    const DeviceGuard guard(device_);
    check(cudaEventRecord(event->get(), stream_), "recording an event");
    return event;
  }

  void wait(const std::shared_ptr<Event>& event) override {
    const auto other = std::dynamic_pointer_cast<CudaEvent>(event);
    if (other == nullptr) {
      throw Error("a CUDA stream can only wait for an event of a CUDA stream");
    }
    const DeviceGuard guard(device_);
    check(cudaStreamWaitEvent(stream_, other->get(), 0), "waiting for an event of another stream");
  }

  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }

 private:
  const int device_;
  const std::shared_ptr<EventPool> pool_;
  const std::shared_ptr<StreamFailure> failure_ = std::make_shared<StreamFailure>();
  std::mutex mutex_;  // Keeps the positions of tasks and events in the stream's order.
  std::uint64_t queued_tasks_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<CopyStream> make_cuda_stream() {
  if (!cuda_available()) {
    throw Error("no CUDA device: nvidia-smi shows what the driver sees, CUDA_VISIBLE_DEVICES what is hidden");
  }
  return std::make_unique<CudaStream>();
}

void* native_cuda_stream(const CopyStream& stream) noexcept {
  const auto* cuda = dynamic_cast<const CudaStream*>(&stream);
  return cuda == nullptr ? nullptr : cuda->get();
}

bool cuda_available() noexcept {
  int count = 0;
  const bool available = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  if (!available) {
    static_cast<void>(cudaGetLastError());
  }
  return available;
}

}  // namespace spillway::offload

#include <spillway/app/bench/tensor_memory.hpp>

#include <algorithm>
#include <memory>
#include <mutex>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace spillway::app {
namespace {

/// Hears of each allocation. LibTorch hands it on to threads that work for this one.
class Meter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*memory*/, std::int64_t bytes, std::size_t /*allocated*/, std::size_t /*reserved*/,
                         c10::Device /*device*/) override {
    const std::lock_guard lock(mutex_);
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
  [[nodiscard]] std::uint64_t peak() const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::uint64_t>(peak_);
  }

 private:
  mutable std::mutex mutex_;
  std::int64_t now_ = 0;
  std::int64_t peak_ = 0;
};

}  // namespace

std::uint64_t peak_tensor_bytes(const std::function<void()>& body) {
  const auto meter = std::make_shared<Meter>();  // Shared: LibTorch's list of what a thread carries owns it too.
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    body();
  }
  return meter->peak();
}

}  // namespace spillway::app

#include <spillway/app/data/work_data_reader.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace spillway::app {

void read_each(std::uint64_t count, unsigned workers, const std::function<void(std::uint64_t)>& body) {
  std::atomic<std::uint64_t> next = 0;
  std::mutex mutex;
  std::uint64_t failed_index = count;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::uint64_t index = next++; index < count; index = next++) {
      try {
        body(index);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (index < failed_index) {
          failed_index = index;
          failure = std::current_exception();
        }
        next = count;  // What has not begun is left out.
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 1; i < std::min<std::uint64_t>(workers, count); ++i) threads.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace spillway::app

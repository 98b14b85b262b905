#include <spillway/offload/parallel.hpp>

#include <algorithm>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace spillway::offload {
namespace {

constexpr std::uint64_t kHelpersMax = 8;

}  // namespace

void parallel_pieces(std::uint64_t total, std::uint64_t piece_min, std::uint64_t grain,
                     const std::function<void(std::uint64_t begin, std::uint64_t end)>& work) {
  const std::uint64_t cores = std::clamp<std::uint64_t>(std::thread::hardware_concurrency(), 1, kHelpersMax);
  const std::uint64_t pieces = std::clamp<std::uint64_t>(total / std::max(piece_min, grain), 1, cores);
  const std::uint64_t piece = (total / grain + pieces - 1) / pieces * grain;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto guarded = [&](std::uint64_t begin) noexcept {
    try {
      work(begin, std::min(begin + piece, total));
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = failure ? failure : std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t begin = piece; begin < total; begin += piece) {
      try {
        threads.emplace_back(guarded, begin);
      } catch (const std::system_error&) {
        guarded(begin);  // No thread is to be had: here, then.
      }
    }
    guarded(0);
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace spillway::offload

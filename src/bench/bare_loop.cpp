#include <spillway/app/bench/bare_loop.hpp>

#include <algorithm>
#include <cstddef>

#include <spillway/app/bench/log_sinks.hpp>
#include <spillway/app/bench/uring_loop.hpp>

namespace spillway::app {

BareLoop::BareLoop(const std::string& folder, std::uint64_t bytes, IoDirection direction)
    : file_(folder, say_nothing), memory_(IoJob().depth * IoJob().block_bytes) {
  job_.bytes = bytes / job_.block_bytes * job_.block_bytes;
  file_.grow(job_.bytes);
  job_.fd = file_.fd();
  job_.direction = IoDirection::kWrite;
  std::ranges::fill(memory_.bytes(), std::byte{0x5a});
  static_cast<void>(run_uring_loop(job_, memory_.bytes()));  // What was never written isn't read from a disk.
  job_.direction = direction;
}

double BareLoop::rate() { return static_cast<double>(job_.bytes) / run_uring_loop(job_, memory_.bytes()).seconds; }

}  // namespace spillway::app

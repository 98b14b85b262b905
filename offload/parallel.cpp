#include <spillway/offload/parallel.hpp>

#include <algorithm>
#include <atomic>

#include <spillway/offload/check.hpp>
#include <spillway/offload/parallel_arenas.hpp>

namespace spillway::offload {

Parallel::Parallel(ParallelOptions options)
    : threads_(options.threads != 0 ? std::min(options.threads, ParallelArenas::usable_threads())
                                    : ParallelArenas::usable_threads()),
      arenas_(std::make_unique<ParallelArenas>(threads_, options.nodes)) {}

Parallel::~Parallel() = default;

unsigned Parallel::nodes() const noexcept { return arenas_->nodes(); }

void Parallel::for_ranges(std::uint64_t size, std::uint64_t grain, const Body& body) const {
  SPILLWAY_CHECK(grain > 0, "ranges of no elements");
  const std::uint64_t count = size / grain + (size % grain != 0 ? 1 : 0);
  const auto range = [&](std::uint64_t index) {
    return Range{index * grain, index + 1 == count ? size : (index + 1) * grain};
  };
  if (count <= 1 || threads_ == 1) {
    for (std::uint64_t index = 0; index < count; ++index) {
      body(range(index));
    }
    return;
  }
  // oneTBB orders these by itself, but thread sanitizer does not see into it.
  std::atomic<bool> begun = false;
  std::atomic<std::uint64_t> ended = 0;
  const auto run = [&](std::uint64_t index) {
    static_cast<void>(begun.load(std::memory_order_acquire));
    struct Publish {
      std::atomic<std::uint64_t>& counter;
      ~Publish() { counter.fetch_add(1, std::memory_order_release); }
    } const publish{ended};
    body(range(index));
  };
  begun.store(true, std::memory_order_release);
  struct Acquire {
    std::atomic<std::uint64_t>& counter;
    ~Acquire() { static_cast<void>(counter.load(std::memory_order_acquire)); }
  } const acquire{ended};
  arenas_->run(count, run);
}

}  // namespace spillway::offload

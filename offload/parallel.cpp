#include <spillway/offload/parallel.hpp>

#include <algorithm>

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
#if defined(__SANITIZE_THREAD__)
  const bool alone = true;  // oneTBB is not instrumented: all that it orders would be reported.
#else
  const bool alone = count <= 1 || threads_ == 1;
#endif
  if (!alone) {
    arenas_->run(count, [&](std::uint64_t index) { body(range(index)); });
    return;
  }
  for (std::uint64_t index = 0; index < count; ++index) {
    body(range(index));
  }
}

}  // namespace spillway::offload

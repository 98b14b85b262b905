#include <spillway/offload/stall_timer.hpp>

namespace spillway::offload {

void count_stall(Tiers& tiers, StallCause cause, Trace::Clock::time_point begin, Trace::Clock::time_point end) {
  tiers.stats().count_stall(cause, end - begin);
  if (tiers.trace() != nullptr) {
    tiers.trace()->add(Trace::Track::kStalls, to_string(cause), begin, end);
  }
}

}  // namespace spillway::offload

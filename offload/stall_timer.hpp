#pragma once

#include <chrono>

#include <spillway/offload/tiers.hpp>

namespace spillway::offload {

/// Counts a wait that was not hidden, with its cause, and puts it on the trace.
void count_stall(Tiers& tiers, StallCause cause, Trace::Clock::time_point begin, Trace::Clock::time_point end);

/// Counts the time from its construction to its end, however the scope is left. Ends on the thread it began on.
class StallTimer {
 public:
  StallTimer(Tiers& tiers, StallCause cause) : tiers_(tiers), cause_(cause) {}
  StallTimer(const StallTimer&) = delete;
  StallTimer& operator=(const StallTimer&) = delete;
  ~StallTimer() { count_stall(tiers_, cause_, begin_, Trace::Clock::now()); }

 private:
  Tiers& tiers_;
  const StallCause cause_;
  const TraceSpan range_{nullptr, Trace::Track::kStalls, "stall"};  // For a profiler alone.
  const Trace::Clock::time_point begin_ = Trace::Clock::now();
};

}  // namespace spillway::offload

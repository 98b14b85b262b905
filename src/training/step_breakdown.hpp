#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <spillway/offload/tiers.hpp>
#include <spillway/offload/trace.hpp>

namespace spillway::app {

/// What a step is made of, one after the other.
enum class StepPhase : std::uint8_t { kViews, kForward, kBackward, kGradients, kUpdate, kAfter };
inline constexpr std::size_t kStepPhases = 6;

/// Seconds by phase.
using PhaseTimes = std::array<double, kStepPhases>;

/// Adds the time until it dies to its phase's, and gives it to the trace (which may be null) as a span.
class PhaseSpan {
 public:
  /// `times` outlives this.
  PhaseSpan(offload::Trace* trace, PhaseTimes& times, StepPhase phase) noexcept;
  ~PhaseSpan();
  PhaseSpan(const PhaseSpan&) = delete;
  PhaseSpan& operator=(const PhaseSpan&) = delete;

 private:
  offload::TraceSpan span_;
  PhaseTimes& times_;
  StepPhase phase_;
  std::chrono::steady_clock::time_point start_;
};

/// `wall_clock_breakdown`: gathers the times of steps and says them every so many.
class TimeBreakdown {
 public:
  /// @param steps_per_line  At least 1.
  explicit TimeBreakdown(std::uint64_t steps_per_line) : steps_per_line_(steps_per_line) {}

  /// @returns the mean milliseconds of each phase since the last line, where it is time for one.
  [[nodiscard]] std::optional<std::string> add(const PhaseTimes& times);

 private:
  std::uint64_t steps_per_line_;
  std::uint64_t steps_ = 0;
  PhaseTimes sums_{};
};

/// `memory_breakdown`: what is used of each tier, its peak, and what the process has resident, on one line.
[[nodiscard]] std::string describe_memory(offload::Tiers& tiers);

}  // namespace spillway::app

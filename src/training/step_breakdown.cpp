#include <spillway/app/training/step_breakdown.hpp>

#include <cstdio>

#include <spillway/app/training/peak_memory.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::app {
namespace {

// In the order of the phases.
constexpr std::array<const char*, kStepPhases> kNames = {
    "views", "forward and loss", "backward", "gradients: mean and norm", "update", "after the update"};

std::string describe(const char* tier, const offload::Budget& budget) {
  return std::string(tier) + " " + offload::format_bytes(budget.used_bytes()) + " (peak " +
         offload::format_bytes(budget.peak_bytes()) + ")";
}

}  // namespace

PhaseSpan::PhaseSpan(offload::Trace* trace, PhaseTimes& times, StepPhase phase) noexcept
    : span_(trace, offload::Trace::Track::kCompute, kNames[static_cast<std::size_t>(phase)]),
      times_(times),
      phase_(phase),
      start_(std::chrono::steady_clock::now()) {}

PhaseSpan::~PhaseSpan() {
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start_;
  times_[static_cast<std::size_t>(phase_)] += taken.count();
}

std::optional<std::string> TimeBreakdown::add(const PhaseTimes& times) {
  for (std::size_t i = 0; i < kStepPhases; ++i) sums_[i] += times[i];
  if (++steps_ % steps_per_line_ != 0) return std::nullopt;
  std::string line = "time per step:";
  for (std::size_t i = 0; i < kStepPhases; ++i) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%s %s %.2f ms", i == 0 ? "" : ",", kNames[i],
                  1e3 * sums_[i] / static_cast<double>(steps_per_line_));
    line += text.data();
  }
  sums_ = {};
  return line;
}

std::string describe_memory(offload::Tiers& tiers) {
  std::string line = "memory: " + describe("host", tiers.host());
  if (tiers.has_disk()) line += ", " + describe("disk", tiers.disk());
  return line + ", process at most " + offload::format_bytes(peak_resident_bytes());
}

}  // namespace spillway::app

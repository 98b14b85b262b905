#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include <spillway/app/report/metrics.hpp>

namespace spillway::app {

/// Width of the terminal that a descriptor is; nothing where it is none.
[[nodiscard]] std::optional<unsigned> terminal_columns(int descriptor) noexcept;

struct ProgressOptions {
  std::optional<unsigned> columns{};  ///< Given: a bar of that width, redrawn in place. Absent: plain lines.
  std::uint64_t total_steps = 0;
  std::uint64_t steps_per_print = 10;  ///< Of plain lines; the first and the last step are shown in any case.
  std::uint64_t device_budget_bytes = 0;
  std::uint64_t host_budget_bytes = 0;
  std::uint64_t disk_budget_bytes = 0;
};

/// Shows a run as it goes: step, loss, samples per second, share of stalled time, steps that were skipped, tier
/// occupancy, time left. Takes its times from the metrics, so that it shows what is recorded. Not thread-safe.
class Progress {
 public:
  /// `out` outlives this.
  Progress(std::ostream& out, const ProgressOptions& options);

  void step(const StepMetrics& metrics);
  /// A line of its own, above the bar.
  void message(std::string_view line);
  /// Leaves the bar as it stands and goes to a new line. Call it after the last step; more calls do nothing.
  void finish();

 private:
  [[nodiscard]] std::string status(const StepMetrics& metrics) const;
  void draw_bar(const StepMetrics& metrics);

  std::ostream& out_;
  ProgressOptions options_;
  double run_s_ = 0.0;
  double stall_s_ = 0.0;
  double undrawn_s_ = 0.0;
  std::uint64_t steps_done_ = 0;
  std::uint64_t steps_skipped_ = 0;
  bool bar_on_line_ = false;
};

}  // namespace spillway::app

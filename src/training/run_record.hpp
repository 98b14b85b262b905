#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <spillway/app/config/config.hpp>
#include <spillway/app/report/metrics.hpp>
#include <spillway/app/report/progress.hpp>
#include <spillway/app/report/summary.hpp>
#include <spillway/app/training/run_checkpoint.hpp>
#include <spillway/app/training/run_parts.hpp>
#include <spillway/app/training/step_breakdown.hpp>

namespace spillway::app {

/// What summary.json in the run's folder says; nothing where there is none. @throws ConfigError where it is no JSON.
[[nodiscard]] std::optional<Summary> read_summary(const Config& config);

/// What a run tells and what it leaves behind: lines and progress for the user, a line a step in metrics.jsonl, and the
/// sums that become summary.json. On a rank that does not lead it keeps the sums and is silent. One caller at a time.
class RunRecord {
 public:
  /// `config` and `out` outlive this. @param columns  Of the terminal that `out` is; nothing: plain lines.
  /// @param steps_kept  Lines of metrics.jsonl that stay: those of the run that goes on.
  /// @throws IoError.
  RunRecord(const Config& config, bool leads, std::ostream& out, std::optional<unsigned> columns,
            std::uint64_t total_steps, std::uint64_t steps_kept);

  /// A line for the user.
  void message(std::string_view line) { progress_.message(line); }
  /// A text for the user that has lines of its own.
  void show(std::string_view text);
  /// Leaves the progress as it stands; what comes next gets a line of its own. More calls do nothing.
  void close_progress() { progress_.finish(); }

  /// Before the first step: removes the summary of an earlier run in the folder.
  void begin();
  /// Goes on with the sums of the run that is resumed.
  void resume(const RunProgress& progress);
  [[nodiscard]] Summary& summary() noexcept { return summary_; }
  /// Steps, from 0, that were skipped so far, in order.
  [[nodiscard]] const std::vector<std::uint64_t>& skipped() const noexcept { return skipped_; }

  /// A step that was made. @param as_predicted  Whether each rank moved the bytes that it was said to.
  void step(const StepMetrics& metrics, const PhaseTimes& phases, bool as_predicted, offload::Tiers& tiers);
  /// For a checkpoint.
  [[nodiscard]] RunProgress so_far() const;
  /// Completes the summary. @param trained  Nothing on a rank that does not measure.
  const Summary& finish(RunParts& parts, const std::optional<EncoderAccuracy>& trained, const std::string& weights);
  /// Writes and shows it. @throws IoError.
  void publish();

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] double seconds() const;
  void add(const StepMetrics& metrics, bool as_predicted);

  const Config& config_;
  const bool leads_;
  std::ostream nowhere_{nullptr};
  std::ostream& out_;
  const Clock::time_point start_ = Clock::now();
  Progress progress_;
  std::optional<MetricsWriter> metrics_;
  TimeBreakdown times_;
  double steps_s_ = 0.0;
  double stall_s_ = 0.0;
  double seconds_before_ = 0.0;  // Of the run that was resumed.
  std::vector<std::uint64_t> skipped_;
  Summary summary_;
};

}  // namespace spillway::app

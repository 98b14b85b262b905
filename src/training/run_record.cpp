#include <spillway/app/training/run_record.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <system_error>

#include <ATen/Parallel.h>

#include <spillway/app/training/peak_memory.hpp>
#include <spillway/app/training/run_evaluation.hpp>

namespace spillway::app {
namespace {

ProgressOptions progress_options(const Config& config, std::optional<unsigned> columns, std::uint64_t total_steps) {
  ProgressOptions progress;
  progress.columns = columns;
  progress.total_steps = total_steps;
  progress.steps_per_print = config.steps_per_print;
  progress.host_budget_bytes = config.offload.host_bytes;
  progress.disk_budget_bytes = config.offload.disk_bytes;
  return progress;
}

std::filesystem::path summary_path(const Config& config) { return std::filesystem::path(config.out) / "summary.json"; }

}  // namespace

std::optional<Summary> read_summary(const Config& config) {
  const std::filesystem::path path = summary_path(config);
  std::ifstream file(path);
  if (!file) return std::nullopt;
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return summary_of(parse_json(text, path.string()));
}

RunRecord::RunRecord(const Config& config, bool leads, std::ostream& out, std::optional<unsigned> columns,
                     std::uint64_t total_steps, std::uint64_t steps_kept)
    : config_(config),
      leads_(leads),
      out_(leads ? out : nowhere_),
      progress_(out_, progress_options(config, leads ? columns : std::nullopt, total_steps)),
      times_(config.steps_per_print) {
  if (leads) metrics_.emplace(std::filesystem::path(config.out) / "metrics.jsonl", steps_kept);
}

void RunRecord::show(std::string_view text) { out_ << text << std::flush; }

double RunRecord::seconds() const {
  return seconds_before_ + std::chrono::duration<double>(Clock::now() - start_).count();
}

void RunRecord::begin() {
  std::error_code ignored;
  if (leads_) std::filesystem::remove(summary_path(config_), ignored);
  summary_.loss_first = summary_.loss_last = std::numeric_limits<double>::quiet_NaN();
}

void RunRecord::resume(const RunProgress& progress) {
  summary_ = progress.summary;
  seconds_before_ = summary_.seconds;
  steps_s_ = progress.steps_s;
  stall_s_ = progress.stall_s;
  skipped_ = progress.skipped;
}

void RunRecord::step(const StepMetrics& metrics, const PhaseTimes& phases, bool as_predicted, offload::Tiers& tiers) {
  const std::optional<std::string> line = times_.add(phases);
  if (line && config_.wall_clock_breakdown) message(*line);
  if (line && config_.memory_breakdown) message(describe_memory(tiers));
  add(metrics, as_predicted);
  if (metrics.accuracy) message(describe_accuracy(metrics.epoch, *metrics.accuracy));
  if (metrics_) metrics_->write(metrics);
  progress_.step(metrics);
}

void RunRecord::add(const StepMetrics& metrics, bool as_predicted) {
  summary_.steps_off_prediction += as_predicted ? 0 : 1;
  if (metrics.step == 1) summary_.loss_first = metrics.loss;
  summary_.loss_last = metrics.loss;
  summary_.steps = metrics.step;
  if (metrics.skipped) skipped_.push_back(metrics.step - 1);
  summary_.skipped_steps = skipped_.size();
  summary_.read_bytes += metrics.read_bytes;
  summary_.write_bytes += metrics.write_bytes;
  stall_s_ += metrics.stall_s;
  // A mean that goes on where a checkpoint had it.
  const double data_stall_s = summary_.data_stall_share * steps_s_ + metrics.data_stall_s;
  steps_s_ += metrics.step_s;
  summary_.data_stall_share = steps_s_ > 0.0 ? data_stall_s / steps_s_ : 0.0;
}

RunProgress RunRecord::so_far() const {
  RunProgress progress{summary_, steps_s_, stall_s_, skipped_};
  progress.summary.seconds = seconds();
  progress.summary.threads = static_cast<std::uint64_t>(at::get_num_threads());
  return progress;
}

const Summary& RunRecord::finish(RunParts& parts, const std::optional<EncoderAccuracy>& trained,
                                 const std::string& weights) {
  if (trained) {
    summary_.accuracy.trained = trained->few_label;
    summary_.knn_accuracy.trained = trained->knn;
  }
  summary_.seconds = seconds();
  summary_.stall_share = steps_s_ > 0.0 ? stall_s_ / steps_s_ : 0.0;
  summary_.host = {parts.tiers().host().limit_bytes(), parts.tiers().host().peak_bytes()};
  if (parts.tiers().has_disk()) {
    summary_.disk = {parts.tiers().disk().limit_bytes(), parts.tiers().disk().peak_bytes()};
  }
  summary_.peak_rss_bytes = peak_resident_bytes();
  summary_.threads = static_cast<std::uint64_t>(at::get_num_threads());
  summary_.weights_xxh3 = weights;
  return summary_;
}

void RunRecord::publish() {
  if (!leads_) return;
  write_json_file(summary_path(config_), to_json(summary_));
  show(describe(summary_));
}

}  // namespace spillway::app

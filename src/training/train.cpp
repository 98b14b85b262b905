#include <spillway/app/training/train.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <system_error>
#include <utility>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <spillway/app/config/config_keys.hpp>
#include <spillway/app/config/load_config.hpp>
#include <spillway/app/data/dataset.hpp>
#include <spillway/app/evaluation/evaluate.hpp>
#include <spillway/app/report/metrics.hpp>
#include <spillway/app/report/progress.hpp>
#include <spillway/app/training/lr_schedule.hpp>
#include <spillway/app/training/optimizer_factory.hpp>
#include <spillway/app/training/peak_memory.hpp>
#include <spillway/app/training/resume.hpp>
#include <spillway/app/training/run_checkpoint.hpp>
#include <spillway/app/training/run_folder.hpp>
#include <spillway/app/training/run_parts.hpp>
#include <spillway/app/training/run_plan.hpp>
#include <spillway/app/training/step_breakdown.hpp>
#include <spillway/app/training/weights_hash.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::app {
namespace {

using Clock = std::chrono::steady_clock;
using offload::format_bytes;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Counters of the tiers at one moment.
struct Reading {
  explicit Reading(const offload::Stats& stats)
      : read(stats.read_bytes), written(stats.written_bytes), stall_ns(stats.stall_ns) {}
  std::uint64_t read;
  std::uint64_t written;
  std::uint64_t stall_ns;
};

constexpr unsigned kFailedCheckpoints = 3;  // In a row; more would be a run that is not written down at all.

class Run {
 public:
  Run(const Config& config, const TrainOptions& options, Dataset dataset, ResumePoint start);
  Summary operator()();

 private:
  void announce();
  void begin(const optimizer::StepBytes& predicted);
  void resume();
  std::optional<Summary> finished_before();
  void save(std::uint64_t step);
  [[nodiscard]] bool due(std::uint64_t step) const;
  optimizer::StepBytes predict_all();
  void loop();
  void write_trace();
  EncoderAccuracy measure(const SplitFeatures& features) const;
  void evaluate_after(std::uint64_t index, StepMetrics& metrics);
  StepMetrics step(std::uint64_t index);
  void break_down(const PhaseTimes& phases);
  void compare(std::uint64_t index, const StepMetrics& metrics);
  Summary finish();

  const Config& config_;
  const TrainOptions& options_;
  const ResumePoint resume_;
  const std::filesystem::path checkpoints_;
  const Clock::time_point start_ = Clock::now();
  std::unique_ptr<distributed::Collective> ranks_;
  Dataset dataset_;
  RunPlan plan_;
  Progress progress_;
  const std::shared_ptr<offload::Trace> trace_;
  RunParts parts_;
  TrafficForecast forecast_;
  LrSchedule schedule_;
  TimeBreakdown times_;
  MetricsWriter metrics_;
  std::optional<EpochOrder> order_;
  std::uint64_t order_epoch_ = 0;
  std::optional<EncoderAccuracy> accuracy_;  // Of the weights as they are.
  double steps_s_ = 0.0;
  double stall_s_ = 0.0;
  double seconds_before_ = 0.0;   // Of the run that was resumed.
  std::uint64_t first_step_ = 0;  // Steps that it had done.
  unsigned failed_checkpoints_ = 0;
  Summary summary_;
};

ProgressOptions progress_options(const Config& config, const TrainOptions& options, const RunPlan& plan) {
  ProgressOptions progress;
  progress.columns = options.columns;
  progress.total_steps = plan.steps();
  progress.steps_per_print = config.steps_per_print;
  progress.host_budget_bytes = config.offload.host_bytes;
  progress.disk_budget_bytes = config.offload.disk_bytes;
  return progress;
}

Run::Run(const Config& config, const TrainOptions& options, Dataset dataset, ResumePoint start)
    : config_(config),
      options_(options),
      resume_(std::move(start)),
      checkpoints_(checkpoint_root(config.out)),
      ranks_(connect_only_rank()),
      dataset_(std::move(dataset)),
      plan_(config, dataset_.images.train.size()),
      progress_(options.out, progress_options(config, options, plan_)),
      trace_(options.trace ? std::make_shared<offload::Trace>() : nullptr),
      parts_(
          config, dataset_.images.train, *ranks_, [this](const std::string& line) { progress_.message(line); }, trace_),
      forecast_(parts_.forecast()),
      schedule_(config.scheduler, config.optimizer.lr, plan_.steps()),
      times_(config.steps_per_print),
      metrics_(std::filesystem::path(config.out) / "metrics.jsonl",
               resume_.in_place ? resume_.found->manifest.step : 0) {}

void Run::announce() {
  const ImageSet& train = dataset_.images.train;
  progress_.message(
      std::string(to_string(config_.method)) + " on " + dataset_.name + ": " + std::to_string(train.size()) +
      " images of " + std::to_string(train.width) + " x " + std::to_string(train.height) + " to train on, " +
      std::to_string(dataset_.images.test.size()) + " to test on; " + std::to_string(plan_.steps()) + " steps of " +
      std::to_string(config_.train_batch_size) + " images, " + std::to_string(at::get_num_threads()) + " threads");
  for (const std::string& note : dataset_.notes) progress_.message(note);
  if (config_.dump_state) progress_.message(to_json(config_).dump(2));
  for (const std::string& note : resume_.notes) progress_.message(note);
  if (config_.has_bank()) {
    progress_.message("the bank starts empty, so that the loss rises while its " +
                      std::to_string(config_.contrastive.queue_size) + " rows fill up");
  }
  if (config_.method == Method::kMoco && config_.contrastive.batch_norm_groups < 2) {
    progress_.message(
        "contrastive.batch_norm_groups is 1: batch statistics tell which rows belong together; take 2 or more");
  }
  for (const std::string& line : describe_placement(parts_.tiers(), parts_.placement(), parts_.outside())) {
    progress_.message(line);
  }
}

/// Walks a copy of the forecast through the run and shows what it says.
optimizer::StepBytes Run::predict_all() {
  const auto [sum, last] = predict_traffic(forecast_, plan_);
  progress_.message("predicted disk traffic: " + format_bytes(sum.read) + " read and " + format_bytes(sum.written) +
                    " written in the run; " + format_bytes(sum.read / plan_.steps()) + " and " +
                    format_bytes(sum.written / plan_.steps()) + " a step on average, " + format_bytes(last.read) +
                    " and " + format_bytes(last.written) + " in the last one");
  return sum;
}

/// The summary of a run that had ended already.
std::optional<Summary> Run::finished_before() {
  const std::filesystem::path path = std::filesystem::path(config_.out) / "summary.json";
  std::ifstream file(path);
  if (!resume_.in_place || resume_.found->manifest.step < plan_.steps() || !file) return std::nullopt;
  const std::string text(std::istreambuf_iterator<char>(file), {});
  Summary summary = summary_of(parse_json(text, path.string()));
  progress_.message("the run has done all its " + std::to_string(plan_.steps()) + " steps; nothing is left to do");
  options_.out << describe(summary) << std::flush;
  return summary;
}

void Run::begin(const optimizer::StepBytes& predicted) {
  std::error_code ignored;
  std::filesystem::remove(std::filesystem::path(config_.out) / "summary.json", ignored);
  summary_.loss_first = summary_.loss_last = std::numeric_limits<double>::quiet_NaN();
  if (!resume_.in_place) {
    if (const auto aside = put_checkpoints_aside(config_.out)) {
      progress_.message("the checkpoints of an earlier run are in " + aside->string() + " now");
    }
  }
  if (resume_.found) {
    resume();
  } else {
    const EncoderAccuracy raw = measure(pixel_features(dataset_.images));
    accuracy_ = measure(encoder_features(dataset_.images, parts_.method().network()));
    summary_.accuracy = {.raw = raw.few_label, .untrained = accuracy_->few_label};
    summary_.knn_accuracy = {.raw = raw.knn, .untrained = accuracy_->knn};
  }
  summary_.predicted_read_bytes = predicted.read;
  summary_.predicted_write_bytes = predicted.written;
}

void Run::resume() {
  const RunProgress progress = restore_run(*resume_.found, parts_);
  first_step_ = resume_.found->manifest.step;
  summary_ = progress.summary;
  seconds_before_ = summary_.seconds;
  steps_s_ = progress.steps_s;
  stall_s_ = progress.stall_s;
  for (std::uint64_t step = 0; step < first_step_; ++step) static_cast<void>(forecast_.next(plan_.rows(step)));
  progress_.message("resumed from " + resume_.found->path.string() + ", after " + std::to_string(first_step_) +
                    " steps");
  if (summary_.threads != static_cast<std::uint64_t>(at::get_num_threads())) {
    progress_.message("it was made with " + std::to_string(summary_.threads) +
                      " threads of LibTorch: with another number the last bits of sums may differ");
  }
}

Summary Run::operator()() {
  announce();
  if (auto summary = finished_before()) return *summary;
  begin(predict_all());
  try {
    loop();
  } catch (...) {
    progress_.finish();  // The reason gets a line of its own.
    write_trace();
    throw;
  }
  progress_.finish();
  write_trace();
  return finish();
}

void Run::write_trace() {
  if (trace_ == nullptr) return;
  std::ofstream file(*options_.trace, std::ios::trunc);
  trace_->write_json(file);
  file.flush();
  progress_.message(file ? "trace of " + std::to_string(trace_->spans()) + " spans in " + *options_.trace
                         : "the trace could not be written to " + *options_.trace);
}

void Run::loop() {
  std::uint64_t saved = first_step_;
  for (std::uint64_t index = first_step_; index < plan_.steps(); ++index) {
    if (options_.stop != nullptr && options_.stop->received()) {
      if (saved != index) save(index);
      progress_.message("stopped by a signal after " + std::to_string(index) + " steps; --resume auto goes on");
      return;
    }
    StepMetrics metrics = step(index);
    compare(index, metrics);
    evaluate_after(index, metrics);
    metrics_.write(metrics);
    progress_.step(metrics);
    if (due(index + 1)) {
      save(index + 1);
      saved = index + 1;
    }
  }
}

/// Whether a checkpoint is to be written after `step` steps.
bool Run::due(std::uint64_t step) const {
  if (step == plan_.steps()) return true;
  return config_.checkpoint.every != 0 ? step % config_.checkpoint.every == 0 : step % plan_.steps_per_epoch() == 0;
}

/// A checkpoint that can't be written costs the run nothing, until it happens time and again.
void Run::save(std::uint64_t step) {
  RunProgress progress{summary_, steps_s_, stall_s_};
  progress.summary.seconds = seconds_before_ + seconds_since(start_);
  progress.summary.threads = static_cast<std::uint64_t>(at::get_num_threads());
  try {
    save_run(checkpoints_, step, to_json(config_), progress, parts_);
    failed_checkpoints_ = 0;
  } catch (const IoError& error) {
    if (++failed_checkpoints_ == kFailedCheckpoints) throw;
    progress_.message("no checkpoint after step " + std::to_string(step) + ": " + error.what() +
                      "; the run goes on, the checkpoints before are as they were");
    return;
  }
  remove_old_checkpoints(checkpoints_, step, config_.checkpoint.keep_last, config_.checkpoint.keep_every);
}

StepMetrics Run::step(std::uint64_t index) {
  const StepPlace place = plan_.place(index);
  if (!order_ || order_epoch_ != place.epoch) {
    order_ = plan_.order(place.epoch);
    order_epoch_ = place.epoch;
  }
  const ScheduledRate rate = schedule_.at(index);
  set_rate(parts_.optimizer(), rate);
  parts_.method().begin_step(index, plan_.steps());
  const Reading before(parts_.tiers().stats());
  const Clock::time_point start = Clock::now();
  const StepResult result = parts_.step().run(*order_, place);
  StepMetrics metrics;
  metrics.step_s = seconds_since(start);
  const Reading after(parts_.tiers().stats());
  metrics.step = index + 1;
  metrics.epoch = place.epoch;
  metrics.loss = result.loss;
  metrics.lr = rate.lr;
  metrics.grad_norm = result.grad_norm;
  metrics.stall_s = static_cast<double>(after.stall_ns - before.stall_ns) * 1e-9;
  metrics.samples_per_s = static_cast<double>(result.samples) / metrics.step_s;
  metrics.read_bytes = after.read - before.read;
  metrics.write_bytes = after.written - before.written;
  metrics.host_bytes = parts_.tiers().host().used_bytes();
  metrics.disk_bytes = parts_.tiers().disk().used_bytes();
  break_down(result.phases);
  return metrics;
}

EncoderAccuracy Run::measure(const SplitFeatures& features) const {
  return {.few_label = evaluate(features, Probe::kFewLabel, config_.evaluation, config_.seed),
          .knn = evaluate(features, Probe::kKnn, config_.evaluation, config_.seed)};
}

/// At the end of each so-many-th epoch.
void Run::evaluate_after(std::uint64_t index, StepMetrics& metrics) {
  accuracy_.reset();
  const StepPlace place = plan_.place(index);
  const std::uint64_t every = config_.evaluation.every;
  if (every == 0 || place.window + 1 != plan_.steps_per_epoch() || (place.epoch + 1) % every != 0) return;
  metrics.accuracy = accuracy_ = measure(encoder_features(dataset_.images, parts_.method().network()));
  std::array<char, 96> line{};
  std::snprintf(line.data(), line.size(), "epoch %llu: few-label accuracy %.1f %%, kNN accuracy %.1f %%",
                static_cast<unsigned long long>(place.epoch + 1), accuracy_->few_label, accuracy_->knn);
  progress_.message(line.data());
}

void Run::break_down(const PhaseTimes& phases) {
  const std::optional<std::string> line = times_.add(phases);
  if (line && config_.wall_clock_breakdown) progress_.message(*line);
  if (line && config_.memory_breakdown) progress_.message(describe_memory(parts_.tiers()));
}

void Run::compare(std::uint64_t index, const StepMetrics& metrics) {
  const optimizer::StepBytes predicted = forecast_.next(plan_.rows(index));
  if (metrics.read_bytes != predicted.read || metrics.write_bytes != predicted.written) {
    ++summary_.steps_off_prediction;
  }
  if (index == 0) summary_.loss_first = metrics.loss;
  summary_.loss_last = metrics.loss;
  summary_.steps = index + 1;
  summary_.read_bytes += metrics.read_bytes;
  summary_.write_bytes += metrics.write_bytes;
  stall_s_ += metrics.stall_s;
  steps_s_ += metrics.step_s;
}

Summary Run::finish() {
  if (!accuracy_) accuracy_ = measure(encoder_features(dataset_.images, parts_.method().network()));
  summary_.accuracy.trained = accuracy_->few_label;
  summary_.knn_accuracy.trained = accuracy_->knn;
  summary_.seconds = seconds_before_ + seconds_since(start_);
  summary_.stall_share = steps_s_ > 0.0 ? stall_s_ / steps_s_ : 0.0;
  summary_.host = {parts_.tiers().host().limit_bytes(), parts_.tiers().host().peak_bytes()};
  if (parts_.tiers().has_disk())
    summary_.disk = {parts_.tiers().disk().limit_bytes(), parts_.tiers().disk().peak_bytes()};
  summary_.peak_rss_bytes = peak_resident_bytes();
  summary_.threads = static_cast<std::uint64_t>(at::get_num_threads());
  summary_.weights_xxh3 = weights_xxh3(parts_.method().parameters());
  write_json_file(std::filesystem::path(config_.out) / "summary.json", to_json(summary_));
  options_.out << describe(summary_) << std::flush;
  return summary_;
}

}  // namespace

Summary train(const Config& config, const TrainOptions& options) {
  const RunFolder folder(config.out);
  ResumePoint start = find_resume_point(options.resume, config.out);
  if (start.found) check_resumable(*start.found, to_json(config));
  write_json_file(std::filesystem::path(config.out) / "config.json", to_json(config));
  at::globalContext().setDeterministicAlgorithms(config.deterministic, /*warn_only=*/false);
  at::manual_seed(config.seed);
  return Run(config, options, load_dataset(config.data, config.seed), std::move(start))();
}

}  // namespace spillway::app

#include <spillway/app/training/train.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <spillway/app/config/load_config.hpp>
#include <spillway/app/data/dataset.hpp>
#include <spillway/app/training/lr_schedule.hpp>
#include <spillway/app/training/optimizer_factory.hpp>
#include <spillway/app/training/resume.hpp>
#include <spillway/app/training/run_announcement.hpp>
#include <spillway/app/training/run_checkpoint.hpp>
#include <spillway/app/training/run_evaluation.hpp>
#include <spillway/app/training/run_parts.hpp>
#include <spillway/app/training/run_plan.hpp>
#include <spillway/app/training/run_ranks.hpp>
#include <spillway/app/training/run_record.hpp>
#include <spillway/app/training/run_start.hpp>
#include <spillway/app/training/weights_hash.hpp>
#include <spillway/distributed/together.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

using Clock = std::chrono::steady_clock;

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
  Run(const Config& config, const TrainOptions& options, RunRanks& ranks, Dataset dataset, ResumePoint start);
  Summary operator()();

 private:
  void announce();
  std::optional<Summary> finished_before();
  void begin();
  void resume();
  void loop();
  void step(std::uint64_t index);
  [[nodiscard]] bool due(std::uint64_t step) const;
  void save(std::uint64_t step);
  StepNews agree(StepNews own);
  Summary finish();
  void write_trace();

  const Config& config_;
  const TrainOptions& options_;
  const ResumePoint resume_;
  const std::filesystem::path checkpoints_;
  RunRanks& ranks_;
  Dataset dataset_;
  RunPlan plan_;
  RunRecord record_;
  const std::shared_ptr<offload::Trace> trace_;
  RunParts parts_;
  TrafficForecast forecast_;
  LrSchedule schedule_;
  RunEvaluation evaluation_;
  std::optional<EpochOrder> order_;
  std::uint64_t order_epoch_ = 0;
  std::uint64_t first_step_ = 0;  // Steps that the run which is resumed had done.
  bool stop_ = false;             // All ranks have agreed to.
  unsigned failed_checkpoints_ = 0;
};

Run::Run(const Config& config, const TrainOptions& options, RunRanks& ranks, Dataset dataset, ResumePoint start)
    : config_(config),
      options_(options),
      resume_(std::move(start)),
      checkpoints_(checkpoint_root(config.out)),
      ranks_(ranks),
      dataset_(std::move(dataset)),
      plan_(config, dataset_.images.train.size(), ranks.place()),
      record_(config, ranks.leads(), options.out, options.columns, plan_.steps(),
              resume_.in_place ? resume_.found->manifest.step : 0),
      trace_(options.trace && ranks.leads() ? std::make_shared<offload::Trace>() : nullptr),
      parts_(
          config, dataset_.images.train, ranks_, [this](const std::string& line) { record_.message(line); }, trace_),
      forecast_(parts_.forecast()),
      schedule_(config.scheduler, config.optimizer.lr, plan_.steps()),
      evaluation_(config, dataset_.images) {}

void Run::announce() {
  record_.message(describe_task(config_, dataset_, plan_, ranks_.place().world_size));
  for (const std::string& note : dataset_.notes) record_.message(note);
  if (config_.dump_state) record_.message(to_json(config_).dump(2));
  for (const std::string& note : resume_.notes) record_.message(note);
  for (const std::string& line : describe_method(config_)) record_.message(line);
  for (const std::string& line : describe_placement(parts_.tiers(), parts_.placement(), parts_.outside())) {
    record_.message(line);
  }
}

/// The summary of a run that had ended already.
std::optional<Summary> Run::finished_before() {
  if (!resume_.in_place || resume_.found->manifest.step < plan_.steps()) return std::nullopt;
  std::optional<Summary> summary = read_summary(config_);
  if (!summary) return std::nullopt;
  record_.message("the run has done all its " + std::to_string(plan_.steps()) + " steps; nothing is left to do");
  record_.show(describe(*summary));
  return summary;
}

void Run::begin() {
  const RunTraffic predicted = predict_traffic(forecast_, plan_);
  record_.message(describe_traffic(predicted, plan_.steps()));
  record_.begin();
  if (!resume_.in_place && ranks_.leads()) {
    if (const auto aside = put_checkpoints_aside(config_.out)) {
      record_.message("the checkpoints of an earlier run are in " + aside->string() + " now");
    }
  }
  if (resume_.found) {
    resume();
  } else if (options_.init) {
    distributed::together(ranks_.all(), "load weights", [&] {
      record_.message(load_initial_weights(*options_.init, options_.init_part, parts_.method()));
    });
  }
  if (!resume_.found && ranks_.leads()) {
    const EncoderAccuracy raw = evaluation_.of_pixels();
    const EncoderAccuracy untrained = evaluation_.of_network(parts_.method().network());
    record_.summary().accuracy = {.raw = raw.few_label, .untrained = untrained.few_label};
    record_.summary().knn_accuracy = {.raw = raw.knn, .untrained = untrained.knn};
  }
  record_.summary().predicted_read_bytes = predicted.all.read;
  record_.summary().predicted_write_bytes = predicted.all.written;
}

void Run::resume() {
  const RunProgress progress = restore_run(*resume_.found, parts_, ranks_);
  first_step_ = resume_.found->manifest.step;
  record_.resume(progress);
  for (std::uint64_t step = 0; step < first_step_; ++step) {
    static_cast<void>(forecast_.next(plan_.window_rows(step), std::ranges::binary_search(progress.skipped, step)));
  }
  record_.message("resumed from " + resume_.found->path.string() + ", after " + std::to_string(first_step_) + " steps");
  if (progress.summary.threads != static_cast<std::uint64_t>(at::get_num_threads())) {
    record_.message("it was made with " + std::to_string(progress.summary.threads) +
                    " threads of LibTorch: with another number the last bits of sums may differ");
  }
}

Summary Run::operator()() {
  announce();
  if (auto summary = finished_before()) return *summary;
  begin();
  try {
    loop();
  } catch (...) {
    record_.close_progress();  // The reason gets a line of its own.
    write_trace();
    throw;
  }
  record_.close_progress();
  write_trace();
  return finish();
}

Summary Run::finish() {
  const std::string weights = agreed_weights(parts_.method().parameters(), ranks_);
  Summary summary;
  distributed::together(ranks_.all(), "complete the run", [&] {
    std::optional<EncoderAccuracy> trained;
    if (ranks_.leads()) trained = evaluation_.of_network(parts_.method().network());
    summary = record_.finish(parts_, trained, weights);
    record_.publish();
  });
  return summary;
}

void Run::loop() {
  std::uint64_t saved = first_step_;
  static_cast<void>(agree({}));  // A signal may have come already.
  for (std::uint64_t index = first_step_; index < plan_.steps(); ++index) {
    if (stop_) {
      if (saved != index) save(index);
      record_.message("stopped by a signal after " + std::to_string(index) + " steps; --resume auto goes on");
      return;
    }
    step(index);
    if (due(index + 1)) {
      save(index + 1);
      saved = index + 1;
    }
  }
}

void Run::step(std::uint64_t index) {
  const StepPlace place = plan_.place(index);
  if (!order_ || order_epoch_ != place.epoch) {
    order_ = plan_.order(place.epoch);
    order_epoch_ = place.epoch;
  }
  const ScheduledRate rate = schedule_.at(index - record_.skipped().size());  // A skipped step does not move it.
  set_rate(parts_.optimizer(), rate);
  parts_.method().begin_step(index, plan_.steps());
  const Reading before(parts_.tiers().stats());
  const std::uint64_t data_stall_before = parts_.step().data_stats().stall_ns;
  const Clock::time_point start = Clock::now();
  const StepResult result = parts_.step().run(*order_, place);
  evaluation_.weights_changed();
  StepMetrics metrics;
  metrics.step_s = std::chrono::duration<double>(Clock::now() - start).count();
  metrics.data_stall_s = static_cast<double>(parts_.step().data_stats().stall_ns - data_stall_before) * 1e-9;
  const Reading after(parts_.tiers().stats());
  metrics.step = index + 1;
  metrics.epoch = place.epoch;
  metrics.lr = rate.lr;
  metrics.grad_norm = result.grad_norm;
  metrics.loss_scale = result.loss_scale;
  metrics.skipped = result.skipped;
  metrics.stall_s = static_cast<double>(after.stall_ns - before.stall_ns) * 1e-9;
  metrics.samples_per_s = static_cast<double>(result.samples) / metrics.step_s;
  metrics.read_bytes = after.read - before.read;
  metrics.write_bytes = after.written - before.written;
  metrics.host_bytes = parts_.tiers().host().used_bytes();
  metrics.disk_bytes = parts_.tiers().disk().used_bytes();
  const optimizer::StepBytes predicted = forecast_.next(plan_.window_rows(index), result.skipped);
  const bool as_predicted = metrics.read_bytes == predicted.read && metrics.write_bytes == predicted.written;
  const StepNews news = agree({.loss = result.loss, .off = as_predicted ? 0U : 1U});
  metrics.loss = news.loss;
  if (ranks_.leads() && evaluation_.due(place, plan_)) {
    metrics.accuracy = evaluation_.of_network(parts_.method().network());
  }
  record_.step(metrics, result.phases, news.off == 0, parts_.tiers());
  if (result.skipped) record_.message(describe_skip(metrics, result.overflow));
}

/// What all ranks have to say, with the signals that they got.
StepNews Run::agree(StepNews own) {
  if (options_.stop != nullptr) own.signal = options_.stop->received();
  StepNews news = ranks_.agree(own);
  if (news.signal && options_.stop != nullptr) options_.stop->remember(*news.signal);
  stop_ = news.signal.has_value();
  return news;
}

/// Whether a checkpoint is to be written after `step` steps.
bool Run::due(std::uint64_t step) const {
  if (step == plan_.steps()) return true;
  return config_.checkpoint.every != 0 ? step % config_.checkpoint.every == 0 : step % plan_.steps_per_epoch() == 0;
}

/// A checkpoint that can't be written costs the run nothing, until it happens time and again.
void Run::save(std::uint64_t step) {
  if (const auto failure = save_run(checkpoints_, step, to_json(config_), record_.so_far(), parts_, ranks_)) {
    if (++failed_checkpoints_ == kFailedCheckpoints) throw Error(*failure);
    record_.message("no checkpoint after step " + std::to_string(step) + ": " + *failure +
                    "; the run goes on, the checkpoints before are as they were");
    return;
  }
  failed_checkpoints_ = 0;
  if (!ranks_.leads()) return;
  remove_old_checkpoints(checkpoints_, step, config_.checkpoint.keep_last, config_.checkpoint.keep_every);
}

void Run::write_trace() {
  if (trace_ == nullptr) return;
  std::ofstream file(*options_.trace, std::ios::trunc);
  trace_->write_json(file);
  file.flush();
  record_.message(file ? "trace of " + std::to_string(trace_->spans()) + " spans in " + *options_.trace
                       : "the trace could not be written to " + *options_.trace);
}

/// A file that one rank alone finds damaged, or lacks, would have the ranks train on different sets.
void compare_images(const SplitImages& images, RunRanks& ranks) {
  if (ranks.alone()) return;
  const std::string own = std::to_string(images.train.size()) + " images to train on and " +
                          std::to_string(images.test.size()) + " to test on, with hash " +
                          std::to_string(contents_hash(images));
  const std::vector<std::string> found = ranks.exchange(own);
  for (std::size_t rank = 1; rank < found.size(); ++rank) {
    if (found[rank] == found.front()) continue;
    throw Error("the ranks have different images: rank 0 has " + found.front() + ", rank " + std::to_string(rank) +
                " has " + found[rank] + "; give all of them the same files");
  }
}

}  // namespace

Summary train(const Config& config, const TrainOptions& options) {
  RunRanks ranks(config, options.environment);
  RunStart start = start_run(config, options.resume, ranks);
  at::globalContext().setDeterministicAlgorithms(config.deterministic, /*warn_only=*/false);
  at::manual_seed(config.seed);
  Dataset dataset;
  distributed::together(ranks.all(), "load its images", [&] { dataset = load_dataset(config.data, config.seed); });
  compare_images(dataset.images, ranks);
  return Run(config, options, ranks, std::move(dataset), std::move(start.point))();
}

}  // namespace spillway::app

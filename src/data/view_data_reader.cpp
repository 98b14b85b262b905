#include <spillway/app/data/view_data_reader.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <spillway/offload/check.hpp>

namespace spillway::app {

ReadViews::ReadViews(std::uint64_t rows, std::uint64_t numel, bool pin)
    : rows_(rows), numel_(numel), memory_(std::max<std::uint64_t>(1, 2 * rows * numel * sizeof(float)), pin) {}

std::span<float> ReadViews::view(std::size_t which) const noexcept {
  return {reinterpret_cast<float*>(memory_.bytes().data()) + which * rows_ * numel_, rows_ * numel_};
}

std::span<float> ReadViews::row(std::size_t which, std::uint64_t row) const noexcept {
  return view(which).subspan(row * numel_, numel_);
}

ViewDataReader::ViewDataReader(const ViewMaker& views, std::uint64_t seed, Sequence sequence,
                               const DataReaderOptions& options)
    : views_(views), seed_(seed), sequence_(std::move(sequence)), options_(options) {}

ViewDataReader::~ViewDataReader() {
  for (std::jthread& worker : workers_) worker.request_stop();
  workers_.clear();  // Joins; a sample that is being made is finished.
}

std::shared_ptr<const ReadViews> ViewDataReader::take(std::uint64_t index) {
  Lock lock(mutex_);
  seek(index);
  while (workers_.size() < options_.workers) {
    workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
  const std::shared_ptr<Job> job = jobs_.front();
  const std::size_t samples = job->batch.samples.size();
  if (job->made < samples) {
    const auto start = std::chrono::steady_clock::now();
    if (options_.workers == 0) {
      while (job->given < samples) make_one(job, lock);
    }
    made_.wait(lock, [&] { return job->made == samples; });
    const auto waited = std::chrono::steady_clock::now() - start;
    ++stats_.waits;
    stats_.stall_ns += static_cast<std::uint64_t>(std::chrono::nanoseconds(waited).count());
  }
  jobs_.pop_front();
  work_or_place_.notify_all();
  ++stats_.batches;
  stats_.samples += samples;
  if (job->failure) std::rethrow_exception(job->failure);
  return job->views;
}

DataReaderStats ViewDataReader::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

/// Puts the job of `index` in front. Those before it are passed over; where it is none of those that follow, all are.
void ViewDataReader::seek(std::uint64_t index) {
  while (!jobs_.empty() && jobs_.front()->index < index) jobs_.pop_front();
  if (jobs_.empty() ? next_index_ != index : jobs_.front()->index != index) {
    jobs_.clear();
    next_index_ = index;
    ended_ = false;
  }
  if (jobs_.empty()) SPILLWAY_CHECK(open_next(), "a batch after the end of the run");
  work_or_place_.notify_all();
}

/// Begins one more batch; false at the end of the sequence.
bool ViewDataReader::open_next() {
  if (ended_) return false;
  std::optional<SampleBatch> batch = sequence_(next_index_);
  if (!batch) {
    ended_ = true;
    return false;
  }
  auto job = std::make_shared<Job>();
  job->index = next_index_++;
  job->batch = std::move(*batch);
  job->views = std::make_shared<ReadViews>(job->batch.samples.size(), views_.set().image_numel(), options_.pin_memory);
  jobs_.push_back(std::move(job));
  stats_.ahead_max = std::max<std::uint64_t>(stats_.ahead_max, jobs_.size());
  return true;
}

std::shared_ptr<ViewDataReader::Job> ViewDataReader::next_job() const {
  const auto open = std::ranges::find_if(jobs_, [](const auto& job) { return job->given < job->batch.samples.size(); });
  return open == jobs_.end() ? nullptr : *open;
}

void ViewDataReader::work(const std::stop_token& stop) {
  Lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (const std::shared_ptr<Job> job = next_job()) {
      make_one(job, lock);
      continue;
    }
    // Jobs are cleared and begun anew under the lock: an empty queue means that nobody has asked for anything yet.
    const auto place = [this] { return !jobs_.empty() && jobs_.size() < options_.prefetch && !ended_; };
    if (place()) {
      static_cast<void>(open_next());
      continue;
    }
    if (jobs_.size() >= options_.prefetch) ++stats_.full_waits;
    work_or_place_.wait(lock, stop, [&] { return place() || next_job() != nullptr; });
  }
}

/// Makes the next sample of the job; the lock is given up meanwhile.
void ViewDataReader::make_one(const std::shared_ptr<Job>& job, Lock& lock) {
  const std::size_t place = job->given++;
  const ViewName name{seed_, job->batch.epoch, job->batch.samples[place], 0};
  const std::array<std::span<float>, 2> rows = {job->views->row(0, place), job->views->row(1, place)};
  lock.unlock();
  std::exception_ptr failure;
  try {
    views_.make(name, rows);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  if (failure && place < job->failed) {
    job->failed = place;
    job->failure = failure;
  }
  if (++job->made == job->batch.samples.size()) made_.notify_all();
}

}  // namespace spillway::app

#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include <spillway/app/data/view_maker.hpp>
#include <spillway/offload/pinned_block.hpp>

namespace spillway::app {

/// The samples of a micro-batch.
struct SampleBatch {
  std::uint32_t epoch = 0;
  std::vector<std::uint32_t> samples{};

  bool operator==(const SampleBatch&) const = default;
};

struct DataReaderOptions {
  std::uint64_t workers = 2;   ///< Threads; 0: batches are made by who takes them.
  std::uint64_t prefetch = 2;  ///< Batches that are ready or being made, at most.
  bool pin_memory = false;     ///< Page-lock batches where there is a GPU.
};

/// Times and counts since construction.
struct DataReaderStats {
  std::uint64_t batches = 0;     ///< Taken.
  std::uint64_t samples = 0;     ///< Of them.
  std::uint64_t waits = 0;       ///< Batches that were not ready when they were asked for.
  std::uint64_t stall_ns = 0;    ///< How long they were waited for, or made by who took them.
  std::uint64_t full_waits = 0;  ///< How often a worker found all places taken, and waited.
  std::uint64_t ahead_max = 0;   ///< Most batches that were ready or being made at once.
};

/// Two views of each sample of a micro-batch.
class ReadViews {
 public:
  ReadViews(std::uint64_t rows, std::uint64_t numel, bool pin);
  /// [rows, channels, height, width] float32. @param which  0 or 1.
  [[nodiscard]] std::span<float> view(std::size_t which) const noexcept;
  [[nodiscard]] std::span<float> row(std::size_t which, std::uint64_t row) const noexcept;

 private:
  std::uint64_t rows_;
  std::uint64_t numel_;
  offload::PinnedBlock memory_;
};

/// Makes the micro-batches of a run ahead of their use, on threads of its own, which read, decode and augment sample by
/// sample. Access is known ahead: the sequence says what batch `index` holds, so that nothing is ever made in vain.
/// Memory is bounded by `prefetch` batches beside those that the caller holds; workers wait where all places are taken.
/// A batch depends on its samples alone, whatever the number of workers. One caller at a time.
class ViewDataReader {
 public:
  /// Batch `index` of the run, or nothing after its end. Called from any thread, one call at a time.
  using Sequence = std::function<std::optional<SampleBatch>(std::uint64_t index)>;

  /// `views` outlives this. Starts nothing before the first take().
  ViewDataReader(const ViewMaker& views, std::uint64_t seed, Sequence sequence, const DataReaderOptions& options);
  ViewDataReader(const ViewDataReader&) = delete;
  ViewDataReader& operator=(const ViewDataReader&) = delete;
  ~ViewDataReader();

  /// Batch `index`; blocks until it is made. Those after it are made in the meantime. Any index may be asked for; what
  /// was made ahead serves the one after the last.
  /// @throws what its first sample that can't be made threw (IoError, FormatError); SPILLWAY_CHECK past the end.
  [[nodiscard]] std::shared_ptr<const ReadViews> take(std::uint64_t index);

  [[nodiscard]] DataReaderStats stats() const;

 private:
  /// A batch that is being made. Its fields are guarded by mutex_, its views by who makes the sample.
  struct Job {
    std::uint64_t index = 0;
    SampleBatch batch;
    std::shared_ptr<ReadViews> views;
    std::size_t given = 0;  ///< Samples that somebody makes or has made.
    std::size_t made = 0;
    std::size_t failed = SIZE_MAX;  ///< The first that failed.
    std::exception_ptr failure;
  };
  using Lock = std::unique_lock<std::mutex>;

  void work(const std::stop_token& stop);
  bool open_next();
  [[nodiscard]] std::shared_ptr<Job> next_job() const;
  void make_one(const std::shared_ptr<Job>& job, Lock& lock);
  void seek(std::uint64_t index);

  const ViewMaker& views_;
  const std::uint64_t seed_;
  const Sequence sequence_;
  const DataReaderOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable_any work_or_place_;  // For workers.
  std::condition_variable made_;               // For the caller.
  std::deque<std::shared_ptr<Job>> jobs_;      // In order of index.
  std::uint64_t next_index_ = 0;
  bool ended_ = false;  // The sequence is at its end.
  DataReaderStats stats_;
  std::vector<std::jthread> workers_;
};

}  // namespace spillway::app

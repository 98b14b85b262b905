#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <spillway/offload/lane_queue.hpp>
#include <spillway/offload/storage_engine.hpp>
#include <spillway/offload/transfer.hpp>

namespace spillway::offload {

/// What the engines have in common: requests wait for what they come after, are cut into chunks, go by lanes, end when
/// all their chunks have, and the first failure poisons. A derived engine moves the chunks on threads of its own: it
/// takes them with try_take() and reports each with end(), and drains in its destructor.
class QueuedEngine : public StorageEngine {
 public:
  [[nodiscard]] FileId register_file(int fd, std::string label) override;
  /// Forgets a file, whose descriptor may be closed then. Precondition: none of its transfers is queued or in flight.
  virtual void release_file(FileId file);
  [[nodiscard]] Ticket submit(const IoRequest& request, std::span<const Ticket> after = {}) override;
  void expedite(const Ticket& ticket) override;
  void drain(std::chrono::milliseconds deadline) override;
  /// Where transfers are counted from now on, in the place of EngineOptions::stats.
  void count_in(Stats* stats);

 protected:
  /// @throws ConfigError for options out of range, naming the setting.
  explicit QueuedEngine(const EngineOptions& options);

  /// A piece of a request, moved by one thread at a time.
  struct Chunk {
    QueuedRequest* request = nullptr;
    IoRequest::Operation operation = IoRequest::Operation::kRead;
    FileId file;
    int fd = -1;
    std::uint64_t offset = 0;  ///< Of the chunk's first byte in the file.
    std::span<std::byte> buffer;
    TransferProgress progress;
    std::chrono::steady_clock::time_point taken{};  ///< Set where transfers are counted.

    [[nodiscard]] std::span<std::byte> rest() const noexcept { return buffer.subspan(progress.done_bytes); }
    [[nodiscard]] std::uint64_t rest_offset() const noexcept { return offset + progress.done_bytes; }
  };

  /// Called with the mutex held when try_take() has something new to give.
  virtual void work_available() noexcept = 0;

  /// The next chunk by lane and order, if there is one.
  [[nodiscard]] bool try_take(std::unique_lock<std::mutex>& lock, Chunk& chunk);
  /// Reports that all of a chunk has moved and that nothing touches its memory any more. Lets go of the lock meanwhile
  /// where requests end with it.
  void end(std::unique_lock<std::mutex>& lock, const Chunk& chunk);
  /// The same for a chunk that failed for good with `result`: the engine is poisoned.
  void fail(std::unique_lock<std::mutex>& lock, const Chunk& chunk, std::int64_t result);
  /// Fails what has not started and all that comes later. No effect if the engine is poisoned already.
  void poison(std::unique_lock<std::mutex>& lock, FailurePtr failure);
  /// For destructors: waits however long it takes.
  void settle() noexcept;

  [[nodiscard]] const EngineOptions& options() const noexcept { return options_; }

  // Guards what is below and whatever the derived engine says.
  mutable std::mutex mutex_;

 private:
  struct File {
    int fd;
    std::string label;
  };
  [[nodiscard]] const File& file_of(FileId id) const;
  void dependency_ended(const RequestState* state, const FailurePtr& failure);
  void refuse_all(FailurePtr failure);
  void count(const Chunk& chunk) const;
  void close(QueuedRequest& request);
  void report_finished(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] bool idle() const noexcept { return open_.empty() && finished_.empty() && !reporting_; }

  const EngineOptions options_;
  Stats* stats_;
  std::condition_variable idle_;
  std::vector<File> files_;
  std::uint64_t next_sequence_ = 0;
  std::unordered_map<const RequestState*, QueuedRequest> open_;
  LaneQueue lanes_;
  FailurePtr failure_;                                                         // The first; set once.
  std::deque<std::pair<std::shared_ptr<RequestState>, FailurePtr>> finished_;  // Ended, not yet reported.
  bool reporting_ = false;
};

}  // namespace spillway::offload

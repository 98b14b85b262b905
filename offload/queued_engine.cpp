#include <spillway/offload/queued_engine.hpp>

#include <algorithm>
#include <string>
#include <unordered_set>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/stats.hpp>

namespace spillway::offload {
namespace {

constexpr std::uint64_t kBlockBytesMax = std::uint64_t{1} << 30U;
constexpr unsigned kQueueDepthMax = 4096;
constexpr unsigned kThreadsMax = 256;

EngineOptions checked(const EngineOptions& options) {
  if (options.block_bytes == 0 || options.block_bytes % kPageBytes != 0 || options.block_bytes > kBlockBytesMax) {
    throw ConfigError("aio.block_size is " + std::to_string(options.block_bytes) +
                      "; it must be a multiple of 4096 between 4096 and " + std::to_string(kBlockBytesMax));
  }
  if (options.queue_depth == 0 || options.queue_depth > kQueueDepthMax) {
    throw ConfigError("aio.queue_depth is " + std::to_string(options.queue_depth) + "; it must be between 1 and " +
                      std::to_string(kQueueDepthMax));
  }
  if (options.threads == 0 || options.threads > kThreadsMax) {
    throw ConfigError("the thread engine's thread count is " + std::to_string(options.threads) +
                      "; it must be between 1 and " + std::to_string(kThreadsMax));
  }
  return options;
}

bool page_aligned(const IoRequest& request) {
  return request.offset % kPageBytes == 0 && request.buffer.size() % kPageBytes == 0 &&
         reinterpret_cast<std::uintptr_t>(request.buffer.data()) % kPageBytes == 0;
}

}  // namespace

QueuedEngine::QueuedEngine(const EngineOptions& options) : options_(checked(options)), stats_(options.stats) {}

FileId QueuedEngine::register_file(int fd, std::string label) {
  const std::lock_guard lock(mutex_);
  const auto unused = std::find_if(files_.begin(), files_.end(), [](const File& file) { return file.fd < 0; });
  const FileId id{static_cast<std::uint32_t>(unused - files_.begin())};
  if (unused != files_.end()) {
    *unused = File{fd, std::move(label)};
  } else {
    files_.push_back(File{fd, std::move(label)});
  }
  return id;
}

void QueuedEngine::release_file(FileId file) {
  const std::lock_guard lock(mutex_);
  static_cast<void>(file_of(file));  // Checks that there is one.
  files_[file.value] = File{-1, {}};
}

Ticket QueuedEngine::submit(const IoRequest& request, std::span<const Ticket> after) {
  SPILLWAY_CHECK(page_aligned(request), "offset, length and address of a transfer are multiples of the page size");
  SPILLWAY_CHECK(!request.buffer.empty(), "a transfer moves at least one page");
  std::shared_ptr<RequestState> state;
  std::vector<std::shared_ptr<RequestState>> predecessors;
  for (const Ticket& ticket : after) {
    if (ticket) {
      predecessors.push_back(ticket.state());
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      throw_io_failure(*failure_);
    }
    state = std::make_shared<RequestState>(IoFailure{.operation = std::string(to_string(request.operation)),
                                                     .path = file_of(request.file).label,
                                                     .offset = request.offset,
                                                     .bytes = request.buffer.size(),
                                                     .error_number = 0,
                                                     .advice = {}});
    QueuedRequest& queued = open_[state.get()];
    queued.state = state;
    queued.io = request;
    queued.sequence = next_sequence_++;
    queued.after = predecessors;
    queued.unmet = predecessors.size() + 1;  // One more, met below: it must not start while they are still counted.
  }
  for (const auto& predecessor : predecessors) {
    predecessor->when_done([this, key = state.get()](const FailurePtr& failure) { dependency_ended(key, failure); });
  }
  dependency_ended(state.get(), nullptr);
  return Ticket(std::move(state));
}

void QueuedEngine::dependency_ended(const RequestState* state, const FailurePtr& failure) {
  std::unique_lock lock(mutex_);
  QueuedRequest& request = open_.at(state);
  if (failure && !request.failure) {
    request.failure = failure;
  }
  if (--request.unmet > 0) {
    return;
  }
  request.after.clear();
  if (!request.failure) {
    request.failure = failure_;
  }
  if (request.failure) {
    close(request);
    report_finished(lock);
    return;
  }
  lanes_.push(request);
  work_available();
}

void QueuedEngine::expedite(const Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  std::unordered_set<const RequestState*> seen;
  std::vector<const RequestState*> pending{ticket.state().get()};
  while (!pending.empty()) {
    const RequestState* const state = pending.back();
    pending.pop_back();
    const auto found = open_.find(state);
    if (found == open_.end() || !seen.insert(state).second) {
      continue;
    }
    QueuedRequest& request = found->second;
    for (const auto& predecessor : request.after) {
      pending.push_back(predecessor.get());
    }
    const bool queued = request.unmet == 0 && !request.fully_issued();
    lanes_.remove(request);
    request.io.lane = Lane::kWaited;
    if (queued) {
      lanes_.push(request);
    }
  }
}

void QueuedEngine::drain(std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  if (!idle_.wait_for(lock, deadline, [this] { return idle(); })) {
    throw TimedOut(std::to_string(open_.size()) + " transfers have not ended within " +
                   std::to_string(deadline.count()) +
                   " ms and are still running; check the disk for faults or overload");
  }
  if (failure_) {
    throw_io_failure(*failure_);
  }
}

void QueuedEngine::settle() noexcept {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return idle(); });
}

void QueuedEngine::count_in(Stats* stats) {
  const std::lock_guard lock(mutex_);
  stats_ = stats;
}

void QueuedEngine::count(const Chunk& chunk) const {
  const bool counted = stats_ != nullptr && chunk.taken != std::chrono::steady_clock::time_point();
  if (counted && chunk.progress.done_bytes == chunk.progress.want_bytes) {
    IoCounters& counters = chunk.operation == IoRequest::Operation::kRead ? stats_->reads : stats_->writes;
    counters.count(chunk.progress.done_bytes, std::chrono::steady_clock::now() - chunk.taken);
  }
}

bool QueuedEngine::try_take(std::unique_lock<std::mutex>& lock, Chunk& chunk) {
  SPILLWAY_CHECK(lock.owns_lock(), "the queue is guarded by the engine's mutex");
  QueuedRequest* const request = lanes_.front();
  if (request == nullptr) {
    return false;
  }
  const std::uint64_t begin = request->issued_bytes;
  if (options_.trace != nullptr && begin == 0) {
    request->started = Trace::Clock::now();
  }
  const std::uint64_t bytes = std::min<std::uint64_t>(options_.block_bytes, request->io.buffer.size() - begin);
  chunk = Chunk{.request = request,
                .operation = request->io.operation,
                .file = request->io.file,
                .fd = file_of(request->io.file).fd,
                .offset = request->io.offset + begin,
                .buffer = request->io.buffer.subspan(begin, bytes),
                .progress = {.want_bytes = bytes},
                .taken = {}};
  if (stats_ != nullptr) {
    chunk.taken = std::chrono::steady_clock::now();
  }
  request->issued_bytes += bytes;
  ++request->in_flight;
  if (request->fully_issued()) {
    lanes_.remove(*request);
  }
  return true;
}

void QueuedEngine::end(std::unique_lock<std::mutex>& lock, const Chunk& chunk) {
  SPILLWAY_CHECK(lock.owns_lock(), "the queue is guarded by the engine's mutex");
  count(chunk);
  QueuedRequest& request = *chunk.request;
  if (failure_) {
    request.failure = failure_;  // Nothing that ends after the first failure is reported as good.
  }
  --request.in_flight;
  if (request.in_flight == 0 && (request.failure || request.fully_issued())) {
    close(request);
    report_finished(lock);
  }
}

void QueuedEngine::fail(std::unique_lock<std::mutex>& lock, const Chunk& chunk, std::int64_t result) {
  SPILLWAY_CHECK(lock.owns_lock(), "the queue is guarded by the engine's mutex");
  refuse_all(make_transfer_failure(chunk.operation, file_of(chunk.file).label, chunk.rest_offset(), chunk.rest().size(),
                                   result));
  end(lock, chunk);
  report_finished(lock);
}

void QueuedEngine::poison(std::unique_lock<std::mutex>& lock, FailurePtr failure) {
  SPILLWAY_CHECK(lock.owns_lock(), "the queue is guarded by the engine's mutex");
  refuse_all(std::move(failure));
  report_finished(lock);
}

// Chunks that are in flight end by themselves; the requests they belong to end with them.
void QueuedEngine::refuse_all(FailurePtr failure) {
  if (failure_) {
    return;
  }
  failure_ = std::move(failure);
  while (QueuedRequest* const request = lanes_.front()) {
    lanes_.remove(*request);
    request->failure = failure_;
    if (request->in_flight == 0) {
      close(*request);
    }
  }
}

const QueuedEngine::File& QueuedEngine::file_of(FileId id) const {
  SPILLWAY_CHECK(id.value < files_.size() && files_[id.value].fd >= 0, "the file is not registered with this engine");
  return files_[id.value];
}

void QueuedEngine::close(QueuedRequest& request) {
  if (options_.trace != nullptr && request.issued_bytes > 0) {
    const bool read = request.io.operation == IoRequest::Operation::kRead;
    options_.trace->add(read ? Trace::Track::kReads : Trace::Track::kWrites, read ? "read" : "write", request.started,
                        Trace::Clock::now(), request.io.buffer.size());
  }
  const auto node = open_.extract(request.state.get());
  finished_.emplace_back(std::move(node.mapped().state), std::move(node.mapped().failure));
}

// A loop, not a recursion through the continuations of those that end: chains of requests may be long.
void QueuedEngine::report_finished(std::unique_lock<std::mutex>& lock) {
  if (reporting_) {
    return;  // Whoever is at it reports these too.
  }
  reporting_ = true;
  while (!finished_.empty()) {
    {
      const auto [state, failure] = std::move(finished_.front());
      finished_.pop_front();
      lock.unlock();
      state->finish(failure);
    }
    lock.lock();
  }
  reporting_ = false;
  if (idle()) {
    idle_.notify_all();
  }
}

}  // namespace spillway::offload

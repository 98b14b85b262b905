#include <spillway/offload/thread_engine.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace spillway::offload {

std::int64_t ThreadEngine::system_transfer(IoRequest::Operation operation, int fd, std::span<std::byte> buffer,
                                           std::uint64_t offset) noexcept {
  const auto position = static_cast<off_t>(offset);
  const ssize_t moved = operation == IoRequest::Operation::kRead ? ::pread(fd, buffer.data(), buffer.size(), position)
                                                                 : ::pwrite(fd, buffer.data(), buffer.size(), position);
  return moved >= 0 ? moved : -std::int64_t{errno};
}

ThreadEngine::ThreadEngine(const EngineOptions& options, Transfer transfer)
    : QueuedEngine(options), transfer_(std::move(transfer)) {
  const unsigned count = std::min(this->options().threads, this->options().queue_depth);
  try {
    while (workers_.size() < count) {
      workers_.emplace_back([this] { work(); });
    }
  } catch (const std::system_error&) {
    if (workers_.empty()) {
      throw;
    }  // Fewer are slower, not wrong.
  }
}

ThreadEngine::~ThreadEngine() {
  settle();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  workers_.clear();  // Joins.
}

EngineInfo ThreadEngine::info() const {
  return {.name = "threads", .fixed_buffers = false, .fixed_files = false, .note = {}};
}

void ThreadEngine::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    Chunk chunk;
    bool taken = false;
    work_.wait(lock, [&] { return (taken = try_take(lock, chunk)) || stopping_; });
    if (!taken) {
      return;
    }
    lock.unlock();
    TransferStep step = TransferStep::kAgain;
    const std::int64_t result = move(chunk, step);
    lock.lock();
    if (step == TransferStep::kComplete) {
      end(lock, chunk);
    } else {
      fail(lock, chunk, result);
    }
  }
}

std::int64_t ThreadEngine::move(Chunk& chunk, TransferStep& step) const {
  std::int64_t result = 0;
  do {
    result = transfer_(chunk.operation, chunk.fd, chunk.rest(), chunk.rest_offset());
    step = advance(chunk.progress, result);
  } while (step == TransferStep::kAgain);
  return result;
}

}  // namespace spillway::offload

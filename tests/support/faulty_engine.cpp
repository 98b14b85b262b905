#include "support/faulty_engine.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::test {
namespace {

using offload::FailurePtr;
using offload::IoRequest;
using offload::Ticket;

const char* name_of(FaultKind kind) {
  constexpr std::array kNames{"fail", "delay", "corrupt", "lose", "tear", "misdirect"};
  return kNames.at(static_cast<std::size_t>(kind));
}

}  // namespace

FaultyEngine::FaultyEngine(std::unique_ptr<offload::StorageEngine> inner, std::uint64_t seed)
    : inner_(std::move(inner)), random_(seed) {}

FaultyEngine::~FaultyEngine() {
  release_delayed();
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return open_.empty(); });
}

void FaultyEngine::inject(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  rules_.push_back({fault});
}

void FaultyEngine::inject_at_random(FaultKind kind, std::uint64_t one_in) {
  const std::lock_guard lock(mutex_);
  random_kind_ = kind;
  random_one_in_ = one_in;
}

void FaultyEngine::release_delayed() {
  std::unique_lock lock(mutex_);
  releasing_ = true;
  while (!delayed_.empty()) {
    const auto [state, failure] = std::move(delayed_.back());
    delayed_.pop_back();
    lock.unlock();
    finish(state, failure);
    lock.lock();
  }
}

std::vector<std::string> FaultyEngine::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

std::uint64_t FaultyEngine::submitted() const {
  const std::lock_guard lock(mutex_);
  return submitted_;
}

offload::FileId FaultyEngine::register_file(int fd, std::string label) {
  const offload::FileId file = inner_->register_file(fd, label);
  const std::lock_guard lock(mutex_);
  labels_.resize(std::max<std::size_t>(labels_.size(), file.value + 1));
  labels_[file.value] = std::move(label);
  return file;
}

Ticket FaultyEngine::submit(const IoRequest& request, std::span<const Ticket> after) {
  StatePtr state;
  std::optional<Fault> fault;
  IoRequest forwarded = request;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      offload::throw_io_failure(*failure_);
    }
    state = std::make_shared<offload::RequestState>(IoFailure{.operation = std::string(to_string(request.operation)),
                                                              .path = labels_.at(request.file.value),
                                                              .offset = request.offset,
                                                              .bytes = request.buffer.size(),
                                                              .error_number = 0,
                                                              .advice = {}});
    open_[state.get()].after.assign(after.begin(), after.end());
    fault = fault_of(request);
    if (fault && fault->kind == FaultKind::kMisdirect) {
      forwarded.offset = previous_offset_;
    }
    previous_offset_ = request.offset;
  }
  if (fault && fault->kind != FaultKind::kDelay && fault->kind != FaultKind::kMisdirect) {
    forward_later(state, request, *fault, after);
    return Ticket(state);
  }
  try {
    forward(state, forwarded, after, fault && fault->kind == FaultKind::kDelay);
  } catch (const IoError&) {  // The engine within is poisoned.
    forget(state);
    throw;
  }
  return Ticket(state);
}

// Called with the mutex held.
std::optional<Fault> FaultyEngine::fault_of(const IoRequest& request) {
  ++submitted_;
  std::optional<Fault> found;
  for (Rule& rule : rules_) {
    if (rule.fault.only && *rule.fault.only != request.operation) {
      continue;
    }
    ++rule.seen;
    if (!found && (rule.seen == rule.fault.nth || (rule.fault.for_good && rule.seen > rule.fault.nth))) {
      found = rule.fault;
    }
  }
  if (!found && random_kind_ && random_.chance(1, random_one_in_)) {
    found = Fault{.kind = *random_kind_, .nth = submitted_, .only = {}};
  }
  if (found) {
    log_.push_back(std::string(name_of(found->kind)) + " transfer " + std::to_string(submitted_) + ": " +
                   std::string(to_string(request.operation)) + " of " + std::to_string(request.buffer.size()) +
                   " bytes at offset " + std::to_string(request.offset));
  }
  return found;
}

void FaultyEngine::forward(const StatePtr& state, const IoRequest& request, std::span<const Ticket> after,
                           bool delayed) {
  const Ticket inner = inner_->submit(request, after);
  {
    const std::lock_guard lock(mutex_);
    open_.at(state.get()).inner = inner;
  }
  inner.state()->when_done([this, state, delayed](const FailurePtr& failure) {
    if (delayed) {
      const std::lock_guard lock(mutex_);
      if (!releasing_) {
        delayed_.emplace_back(state, failure);
        return;
      }
    }
    finish(state, failure);
  });
}

// Faults that touch memory or the order of things do so when the transfer would start: not before all that it comes
// after has ended.
void FaultyEngine::forward_later(const StatePtr& state, const IoRequest& request, const Fault& fault,
                                 std::span<const Ticket> after) {
  struct Progress {
    std::atomic<std::size_t> unmet;
    std::mutex mutex;
    FailurePtr failure;
  };
  const auto progress = std::make_shared<Progress>();
  progress->unmet = after.size() + 1;
  const auto met = [this, progress, state, request, fault](const FailurePtr& failure) {
    {
      const std::lock_guard lock(progress->mutex);
      progress->failure = progress->failure ? progress->failure : failure;
    }
    if (--progress->unmet == 0) {
      progress->failure ? finish(state, progress->failure) : meet(state, request, fault);
    }
  };
  for (const Ticket& ticket : after) {
    ticket ? ticket.state()->when_done(met) : met(nullptr);
  }
  met(nullptr);
}

void FaultyEngine::meet(const StatePtr& state, IoRequest request, const Fault& fault) {
  const bool read = request.operation == IoRequest::Operation::kRead;
  std::shared_ptr<offload::AlignedBlock> copy;  // What a damaged write writes: the caller's memory stays as it is.
  switch (fault.kind) {
    case FaultKind::kFail: {
      {
        const std::lock_guard lock(mutex_);
        if (!failure_) {
          failure_ = offload::make_transfer_failure(request.operation, labels_.at(request.file.value), request.offset,
                                                    request.buffer.size(), -std::int64_t{fault.error_number});
        }
      }
      finish(state, nullptr);
      return;
    }
    case FaultKind::kLose:
      finish(state, nullptr);
      return;
    case FaultKind::kTear:
      request.buffer = request.buffer.first(request.buffer.size() / offload::kPageBytes / 2 * offload::kPageBytes);
      if (request.buffer.empty()) {
        finish(state, nullptr);
        return;
      }
      break;
    case FaultKind::kCorrupt:
      if (!read) {
        copy = std::make_shared<offload::AlignedBlock>(request.buffer.size());
        std::copy(request.buffer.begin(), request.buffer.end(), copy->bytes().begin());
        request.buffer = copy->bytes().first(request.buffer.size());
        flip_a_bit(request.buffer);
      }
      break;
    case FaultKind::kDelay:
    case FaultKind::kMisdirect:
      break;  // These are forwarded at once.
  }
  try {
    inner_->submit(request, {})
        .state()
        ->when_done([this, state, fault, copy, request, read](const FailurePtr& failure) {
          if (fault.kind == FaultKind::kCorrupt && read && !failure) {
            flip_a_bit(request.buffer);
          }
          finish(state, failure);
        });
  } catch (const IoError& error) {  // The engine within is poisoned.
    finish(state, std::make_shared<const IoFailure>(error.failure()));
  }
}

void FaultyEngine::flip_a_bit(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t bit = random_.below(memory.size() * 8);
  memory[bit / 8] ^= std::byte(1U << (bit % 8));
}

void FaultyEngine::finish(const StatePtr& state, FailurePtr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      failure = failure_;  // Nothing that ends after the first failure is reported as good.
    }
  }
  state->finish(failure);
  forget(state);
}

void FaultyEngine::forget(const StatePtr& state) {
  const std::lock_guard lock(mutex_);
  open_.erase(state.get());
  if (open_.empty()) {
    idle_.notify_all();
  }
}

void FaultyEngine::expedite(const Ticket& ticket) {
  std::vector<Ticket> pending{ticket};
  while (!pending.empty()) {
    Open open;
    {
      const std::lock_guard lock(mutex_);
      const auto found = open_.find(pending.back().state().get());
      open = found == open_.end() ? Open{} : found->second;
    }
    pending.pop_back();
    pending.insert(pending.end(), open.after.begin(), open.after.end());
    if (open.inner) {
      inner_->expedite(open.inner);
    }
  }
}

void FaultyEngine::drain(std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  if (!idle_.wait_for(lock, deadline, [this] { return open_.empty(); })) {
    throw TimedOut(std::to_string(open_.size()) + " transfers have not ended within " +
                   std::to_string(deadline.count()) + " ms");
  }
  if (failure_) {
    offload::throw_io_failure(*failure_);
  }
}

}  // namespace spillway::test

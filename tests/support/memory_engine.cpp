#include "support/memory_engine.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <spillway/offload/check.hpp>
#include <spillway/offload/tier.hpp>

namespace spillway::test {

using namespace offload;

namespace {

bool is_write(const IoRequest& request) { return request.operation == IoRequest::Operation::kWrite; }

bool overlap(std::uint64_t a, std::uint64_t a_bytes, std::uint64_t b, std::uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

bool same_memory(const IoRequest& a, const IoRequest& b) {
  return overlap(reinterpret_cast<std::uintptr_t>(a.buffer.data()), a.buffer.size(),
                 reinterpret_cast<std::uintptr_t>(b.buffer.data()), b.buffer.size());
}

bool same_place(const IoRequest& a, const IoRequest& b) {
  return overlap(a.offset, a.buffer.size(), b.offset, b.buffer.size());
}

}  // namespace

void MemoryEngine::set_fate(std::function<Fate(std::uint64_t, const IoRequest&)> fate, bool poison) {
  const std::lock_guard lock(mutex_);
  fate_ = std::move(fate);
  poison_ = poison;
}

void MemoryEngine::set_ending(Ending ending) {
  const std::lock_guard lock(mutex_);
  ending_ = ending;
}

std::vector<MemoryEngine::Entry> MemoryEngine::in_flight() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> entries;
  for (const Transfer& transfer : open_) {
    entries.push_back(transfer.entry);
  }
  return entries;
}

std::uint64_t MemoryEngine::submitted() const {
  const std::lock_guard lock(mutex_);
  return submitted_;
}

std::vector<std::string> MemoryEngine::hazards() const {
  const std::lock_guard lock(mutex_);
  return hazards_;
}

void MemoryEngine::end_all() {
  const std::lock_guard lock(mutex_);
  end_some(true);
}

std::span<std::byte> MemoryEngine::disk(std::uint64_t offset, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  SPILLWAY_CHECK(offset + bytes <= disk_.size(), "nothing was written there");
  return std::span(disk_).subspan(offset, bytes);
}

std::vector<std::span<std::byte>> MemoryEngine::registered() const {
  const std::lock_guard lock(mutex_);
  return registered_;
}

FileId MemoryEngine::register_file(int /*fd*/, std::string /*label*/) { return FileId{0}; }

void MemoryEngine::register_memory(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  registered_.push_back(memory);
}

void MemoryEngine::unregister_memory(std::span<std::byte> memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(registered_.begin(), registered_.end(),
                                  [&](const auto& other) { return other.data() == memory.data(); });
  SPILLWAY_CHECK(found != registered_.end(), "memory is given back that was not registered");
  registered_.erase(found);
  for (const Transfer& transfer : open_) {
    SPILLWAY_CHECK(!overlap(reinterpret_cast<std::uintptr_t>(transfer.entry.request.buffer.data()), 1,
                            reinterpret_cast<std::uintptr_t>(memory.data()), memory.size()),
                   "memory is given back while a transfer is in flight");
  }
}

Ticket MemoryEngine::submit(const IoRequest& request, std::span<const Ticket> after) {
  SPILLWAY_CHECK(request.offset % kPageBytes == 0 && request.buffer.size() % kPageBytes == 0 &&
                     reinterpret_cast<std::uintptr_t>(request.buffer.data()) % kPageBytes == 0,
                 "a transfer is not aligned");
  const std::lock_guard lock(mutex_);
  if (failure_ && poison_) {
    throw_io_failure(*failure_);
  }
  Transfer transfer{{++submitted_, request}, nullptr, {}, {}, nullptr};
  transfer.state = std::make_shared<State>(
      IoFailure{std::string(to_string(request.operation)), "memory", request.offset, request.buffer.size(), 0, {}});
  for (const Ticket& ticket : after) {
    const State* state = ticket.state().get();
    if (find(state) != nullptr) {
      transfer.after.push_back(state);
    } else if (ticket) {
      transfer.others.push_back(ticket);
    }
    for (const Ended& ended : failed_) {
      transfer.inherited = ended.state.get() == state ? ended.failure : transfer.inherited;
    }
  }
  note_hazards(transfer);
  open_.push_back(transfer);
  end_some(false);
  return Ticket(transfer.state);
}

void MemoryEngine::expedite(const Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  while (ending_ != Ending::kByHand && find(ticket.state().get()) != nullptr) {
    if (ending_ == Ending::kShuffled) {
      end_some(false);
    } else {
      end_with_predecessors(ticket.state().get());
    }
  }
}

void MemoryEngine::drain(std::chrono::milliseconds /*deadline*/) {
  const std::lock_guard lock(mutex_);
  end_some(true);
  if (failure_) {
    throw_io_failure(*failure_);
  }
}

EngineInfo MemoryEngine::info() const { return {"memory", false, false, {}}; }

MemoryEngine::Transfer* MemoryEngine::find(const State* state) {
  const auto found =
      std::find_if(open_.begin(), open_.end(), [&](const Transfer& transfer) { return transfer.state.get() == state; });
  return found == open_.end() ? nullptr : &*found;
}

bool MemoryEngine::comes_after(const Transfer& later, const Transfer& earlier) {
  return std::any_of(later.after.begin(), later.after.end(), [&](const State* state) {
    const Transfer* between = find(state);
    return between != nullptr && (between == &earlier || comes_after(*between, earlier));
  });
}

void MemoryEngine::note_hazards(const Transfer& later) {
  const IoRequest& b = later.entry.request;
  for (const Transfer& earlier : open_) {
    const IoRequest& a = earlier.entry.request;
    const bool in_memory = same_memory(a, b) && !(is_write(a) && is_write(b));
    const bool on_disk = same_place(a, b) && is_write(a);
    if ((in_memory || on_disk) && !comes_after(later, earlier)) {
      hazards_.push_back(std::string(to_string(b.operation)) + " " + std::to_string(later.entry.number) +
                         " does not wait for " + std::string(to_string(a.operation)) + " " +
                         std::to_string(earlier.entry.number) + (in_memory ? " in memory" : " on disk"));
    }
  }
}

void MemoryEngine::end(std::size_t index) {
  const Transfer transfer = open_[index];
  open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(index));
  for (const Ticket& other : transfer.others) {
    other.settle();  // One of this engine has ended, and others do by themselves.
  }
  FailurePtr failure = transfer.inherited ? transfer.inherited : perform(transfer);
  if (failure) {
    failed_.push_back({transfer.state, failure});
    if (!failure_) {
      failure_ = failure;
    }
  }
  for (Transfer& later : open_) {
    if (std::erase(later.after, transfer.state.get()) > 0 && failure) {
      later.inherited = failure;
    }
  }
  transfer.state->finish(failure);  // Nobody in these tests hangs a continuation on it that calls back.
}

void MemoryEngine::end_with_predecessors(const State* state) {
  while (Transfer* transfer = find(state)) {
    if (transfer->after.empty()) {
      end(static_cast<std::size_t>(transfer - open_.data()));
      return;
    }
    end_with_predecessors(transfer->after.front());
  }
}

void MemoryEngine::end_some(bool all) {
  if (!all && (ending_ == Ending::kOnDemand || ending_ == Ending::kByHand)) {
    return;
  }
  std::uint64_t count = all || ending_ == Ending::kAtOnce ? open_.size() : random_.below(3);
  for (; count > 0 && !open_.empty(); --count) {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      if (open_[i].after.empty()) {
        ready.push_back(i);
      }
    }
    end(ending_ == Ending::kShuffled ? random_.pick(std::span<const std::size_t>(ready)) : ready.front());
  }
}

FailurePtr MemoryEngine::perform(const Transfer& transfer) {
  const IoRequest& request = transfer.entry.request;
  const Fate fate = fate_ ? fate_(transfer.entry.number, request) : Fate::kDone;
  if (failure_ && poison_) {
    return failure_;
  }
  if (fate == Fate::kFailed) {
    return make_transfer_failure(request.operation, "memory", request.offset, request.buffer.size(), -EIO);
  }
  if (fate == Fate::kLost) {
    return nullptr;
  }
  const std::uint64_t offset = request.offset + (fate == Fate::kMisdirected ? kPageBytes : 0);
  if (disk_.size() < offset + request.buffer.size()) {
    disk_.resize(offset + request.buffer.size());
  }
  if (is_write(request)) {
    std::memcpy(disk_.data() + offset, request.buffer.data(), request.buffer.size());
  } else {
    std::memcpy(request.buffer.data(), disk_.data() + offset, request.buffer.size());
  }
  return nullptr;
}

}  // namespace spillway::test

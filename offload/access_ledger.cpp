#include <spillway/offload/access_ledger.hpp>

#include <algorithm>
#include <utility>

#include <spillway/offload/checksum.hpp>

namespace spillway::offload {
namespace {

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const auto first_a = reinterpret_cast<std::uintptr_t>(a.data());
  const auto first_b = reinterpret_cast<std::uintptr_t>(b.data());
  return first_a < first_b + b.size() && first_b < first_a + a.size();
}

}  // namespace

std::uint32_t AccessLedger::add_stream() {
  const std::lock_guard lock(mutex_);
  streams_.emplace_back();
  return static_cast<std::uint32_t>(streams_.size() - 1);
}

AccessLedger::Task AccessLedger::queue(std::uint32_t stream, std::string name, const std::vector<Range>& ranges,
                                       bool declared) {
  const std::lock_guard lock(mutex_);
  Clock& clock = streams_[stream];
  join(clock, host_);  // What the host has seen done is done before all that it queues from now on.
  Task task{stream, ++clock[stream], declared, std::move(name), {}};
  task.name += " (task " + std::to_string(task.position) + " of stream " + std::to_string(stream) + ")";
  for (const Range& range : ranges) {
    check(task.name, range, clock);
    const bool known = !may_change(range);
    task.sealed.push_back({range, known, known ? xxh3_64(range.bytes) : 0});
  }
  for (const Range& range : ranges) {
    accesses_.push_back({range, stream, task.position, task.name});
  }
  undeclared_ += declared ? 0 : 1;
  return task;
}

// Nobody but the host can have changed the bytes since the task was queued.
void AccessLedger::starts(const Task& task) {
  for (const Sealed& sealed : task.sealed) {
    if (sealed.known && xxh3_64(sealed.range.bytes) != sealed.sum) {
      const std::lock_guard lock(mutex_);
      misuses_.push_back("bytes that " + task.name + (sealed.range.writes ? " writes" : " reads") +
                         " were changed before an event said that it is done");
    }
  }
}

void AccessLedger::ended(const Task& task) {
  const std::lock_guard lock(mutex_);
  undeclared_ -= task.declared ? 0 : 1;
  for (Access& access : accesses_) {
    access.ended = access.ended || (access.stream == task.stream && access.position == task.position);
  }
}

AccessLedger::Clock AccessLedger::recorded(std::uint32_t stream) const {
  const std::lock_guard lock(mutex_);
  Clock clock = streams_[stream];
  join(clock, host_);
  return clock;
}

void AccessLedger::stream_waits(std::uint32_t stream, const Clock& event) {
  const std::lock_guard lock(mutex_);
  join(streams_[stream], event);
}

void AccessLedger::host_saw(const Clock& event) {
  const std::lock_guard lock(mutex_);
  join(host_, event);
  std::erase_if(accesses_, [this](const Access& access) { return covers(host_, access); });
}

void AccessLedger::host_touches(const Range& range) {
  const std::lock_guard lock(mutex_);
  check("the host", range, host_);
}

std::vector<std::string> AccessLedger::misuses() const {
  const std::lock_guard lock(mutex_);
  return misuses_;
}

void AccessLedger::join(Clock& clock, const Clock& other) {
  for (const auto& [stream, position] : other) {
    std::uint64_t& known = clock[stream];
    known = std::max(known, position);
  }
}

bool AccessLedger::covers(const Clock& clock, const Access& access) {
  const auto known = clock.find(access.stream);
  return known != clock.end() && known->second >= access.position;
}

void AccessLedger::check(const std::string& who, const Range& range, const Clock& clock) {
  for (const Access& access : accesses_) {
    if ((range.writes || access.range.writes) && overlap(range.bytes, access.range.bytes) && !covers(clock, access)) {
      misuses_.push_back(who + (range.writes ? " writes" : " reads") + " bytes that " + access.name +
                         (access.range.writes ? " writes" : " reads") + ", without an event between them");
    }
  }
}

bool AccessLedger::may_change(const Range& range) const {
  return undeclared_ > 0 || std::any_of(accesses_.begin(), accesses_.end(), [&](const Access& access) {
           return access.range.writes && !access.ended && overlap(range.bytes, access.range.bytes);
         });
}

}  // namespace spillway::offload

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace spillway::offload {

/// Who may touch which bytes when, for the streams of one simulated device: an access to bytes that another one is not
/// known to be done with is misuse, whatever the timing is. Known means: earlier in the same stream, before an event
/// that the stream waited for, or before an event that the host saw done. All host threads are taken for one.
/// Thread-safe.
class AccessLedger {
 public:
  /// How far each stream has come, as somebody knows it: stream -> tasks.
  using Clock = std::map<std::uint32_t, std::uint64_t>;

  struct Range {
    std::span<const std::byte> bytes;
    bool writes = false;
  };
  /// What the bytes of one range were when a task was queued, to see later whether somebody changed them.
  struct Sealed {
    Range range;
    bool known = false;  ///< Otherwise something that was still to run might change them.
    std::uint64_t sum = 0;
  };
  struct Task {
    std::uint32_t stream = 0;
    std::uint64_t position = 0;
    bool declared = true;
    std::string name;
    std::vector<Sealed> sealed;
  };

  [[nodiscard]] std::uint32_t add_stream();
  /// Notes a task that will touch `ranges`, and what it must not touch yet. `declared`: these are all that it touches.
  [[nodiscard]] Task queue(std::uint32_t stream, std::string name, const std::vector<Range>& ranges, bool declared);
  /// Called where the task runs: before it does anything, and when it has.
  void starts(const Task& task);
  void ended(const Task& task);

  [[nodiscard]] Clock recorded(std::uint32_t stream) const;
  void stream_waits(std::uint32_t stream, const Clock& event);
  void host_saw(const Clock& event);
  void host_touches(const Range& range);

  [[nodiscard]] std::vector<std::string> misuses() const;

 private:
  struct Access {
    Range range;
    std::uint32_t stream;
    std::uint64_t position;
    std::string name;
    bool ended = false;
  };
  static void join(Clock& clock, const Clock& other);
  [[nodiscard]] static bool covers(const Clock& clock, const Access& access);
  void check(const std::string& who, const Range& range, const Clock& clock);
  [[nodiscard]] bool may_change(const Range& range) const;

  mutable std::mutex mutex_;
  std::vector<Clock> streams_;
  Clock host_;
  std::vector<Access> accesses_;  // Those that the host has not seen the end of.
  std::uint64_t undeclared_ = 0;  // Tasks that have not ended and may touch anything.
  std::vector<std::string> misuses_;
};

}  // namespace spillway::offload

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <spillway/offload/request_state.hpp>
#include <spillway/offload/storage_engine.hpp>
#include <spillway/offload/trace.hpp>

namespace spillway::offload {

/// A request inside an engine, from submit until it has ended.
struct QueuedRequest {
  std::shared_ptr<RequestState> state;
  IoRequest io;
  std::uint64_t sequence = 0;                        ///< Order of submission.
  std::vector<std::shared_ptr<RequestState>> after;  ///< What it waits for; emptied once it may start.
  std::size_t unmet = 0;                             ///< How many of them have not ended yet.
  std::uint64_t issued_bytes = 0;                    ///< Handed out as chunks so far.
  unsigned in_flight = 0;                            ///< Chunks handed out that have not ended.
  Trace::Clock::time_point started;                  ///< Where it is traced: when its first chunk was handed out.
  FailurePtr failure;

  [[nodiscard]] bool fully_issued() const noexcept { return issued_bytes == io.buffer.size(); }
};

/// Requests that may start and are not fully issued: one queue for each lane, ordered by submission. Does not own the
/// requests. Not thread-safe.
class LaneQueue {
 public:
  void push(QueuedRequest& request);
  /// No effect if it is not queued.
  void remove(QueuedRequest& request);
  /// The one to take the next chunk from, or null.
  [[nodiscard]] QueuedRequest* front() const noexcept;

 private:
  std::array<std::map<std::uint64_t, QueuedRequest*>, kLaneCount> lanes_;
};

}  // namespace spillway::offload

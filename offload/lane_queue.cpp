#include <spillway/offload/lane_queue.hpp>

namespace spillway::offload {

void LaneQueue::push(QueuedRequest& request) {
  lanes_[static_cast<std::size_t>(request.io.lane)].emplace(request.sequence, &request);
}

void LaneQueue::remove(QueuedRequest& request) {
  lanes_[static_cast<std::size_t>(request.io.lane)].erase(request.sequence);
}

QueuedRequest* LaneQueue::front() const noexcept {
  for (const auto& lane : lanes_) {
    if (!lane.empty()) {
      return lane.begin()->second;
    }
  }
  return nullptr;
}

}  // namespace spillway::offload

#include <algorithm>

#include <spillway/offload/check.hpp>
#include <spillway/queue/segment_ring.hpp>

namespace spillway::queue {

using offload::Tier;

namespace {

std::int64_t ceil_div(std::int64_t dividend, std::int64_t divisor) { return (dividend + divisor - 1) / divisor; }

}  // namespace

SegmentRing::SegmentRing(const RingShape& shape) : shape_(shape), capacity_(shape.capacity) {
  const std::int64_t all = segments_max(shape.capacity, shape.segment_rows);
  // Where host memory has room for all, nothing spills; otherwise one place is kept for the open segment.
  sealed_in_host_max_ = shape.resident_segments >= all ? all : shape.resident_segments - 1;
}

SegmentRing::Step SegmentRing::next(std::int64_t pending) const {
  SPILLWAY_CHECK(pending >= 0 && pending <= capacity_, "more rows pending than the ring can hold");
  // Everything that has to leave goes first, so that no segment is written to disk just to be dropped.
  if (size_ + pending > capacity_) return {Action::kTrim, 0, size_ + pending - capacity_};
  if (!segments_.empty() && sealed(segments_.front()) && trimmed_ >= segments_.front().rows) return {Action::kDrop};

  std::int64_t sealed_in_host = 0;
  std::size_t oldest_in_host = segments_.size();
  for (std::size_t i = segments_.size(); i-- > 0 && segments_[i].home == Tier::kHost;) {
    if (!sealed(segments_[i])) continue;
    ++sealed_in_host;
    oldest_in_host = i;
  }
  // Demoting as soon as a segment is full, not when the next row comes, gives the write the time until then.
  if (sealed_in_host > sealed_in_host_max_) return {Action::kDemote, oldest_in_host};

  if (pending == 0) return {};
  if (room_in_open() == 0) return {Action::kOpen, segments_.size()};
  return {Action::kFill, segments_.size() - 1, std::min(pending, room_in_open())};
}

void SegmentRing::apply(const Step& step) {
  switch (step.action) {
    case Action::kDone:
      break;
    case Action::kTrim: {
      size_ -= step.rows;
      trimmed_ += step.rows;
      SPILLWAY_CHECK(size_ >= 0, "trimmed more rows than there are");
      break;
    }
    case Action::kDrop:
      trimmed_ -= segments_.front().rows;
      segments_.pop_front();
      break;
    case Action::kDemote:
      segments_.at(step.index).home = Tier::kDisk;
      break;
    case Action::kOpen:
      segments_.emplace_back();
      break;
    case Action::kFill:
      segments_.back().rows += step.rows;
      size_ += step.rows;
      break;
  }
}

void SegmentRing::resize(std::int64_t capacity) {
  SPILLWAY_CHECK(capacity >= 1 && capacity <= shape_.capacity, "a capacity beyond what the ring was made for");
  capacity_ = capacity;
}

void SegmentRing::clear() {
  segments_.clear();
  size_ = 0;
  trimmed_ = 0;
}

std::int64_t SegmentRing::count_on(Tier tier) const {
  return std::count_if(segments_.begin(), segments_.end(), [&](const Segment& s) { return s.home == tier; });
}

std::int64_t SegmentRing::room_in_open() const {
  return segments_.empty() ? 0 : shape_.segment_rows - segments_.back().rows;
}

std::int64_t SegmentRing::segments_max(std::int64_t capacity, std::int64_t segment_rows) {
  // One row in the open segment, the other capacity - 1 in sealed ones, the oldest of which may hold a single one.
  return 1 + ceil_div(capacity - 1, segment_rows);
}

std::int64_t SegmentRing::disk_segments_max(const RingShape& shape) {
  if (shape.resident_segments >= segments_max(shape.capacity, shape.segment_rows)) return 0;
  // A segment is demoted when all are sealed: capacity/segment_rows of them, rounded up, less those that stay.
  return ceil_div(shape.capacity, shape.segment_rows) - (shape.resident_segments - 1);
}

}  // namespace spillway::queue

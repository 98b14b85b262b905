#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include <spillway/offload/tier.hpp>

namespace spillway::queue {

struct RingShape {
  std::int64_t capacity = 0;           ///< Valid rows at most, whatever resize() says.
  std::int64_t segment_rows = 0;       ///< Rows of one segment.
  std::int64_t resident_segments = 0;  ///< Segments that host memory has room for, the open one included; >= 1.
};

/// The bookkeeping of the bank without the bank: which segments there are, how many rows they hold, which of them are
/// valid and on which tier they live. Integers only, so that the same rules drive the bank and predict what it will
/// read and write. Rows enter the open segment at the back; full ones are sealed; the newest sealed ones stay in host
/// memory, older ones are demoted to disk; rows leave at the front by a valid range, and a segment without a valid row
/// is dropped.
///
/// A change is a sequence of small steps: next() says what comes next, the owner does it, apply() records it. A step
/// that fails half-way is therefore simply not recorded, and the ring still describes what there is. A value type; not
/// thread-safe.
class SegmentRing {
 public:
  struct Segment {
    std::int64_t rows = 0;  ///< Written so far.
    offload::Tier home = offload::Tier::kHost;
  };

  enum class Action : std::uint8_t {
    kDone,    ///< Nothing is left to do.
    kTrim,    ///< The oldest `rows` rows become invalid.
    kDrop,    ///< Segment 0 has no valid row left: forget it.
    kDemote,  ///< Segment `index` moves from host memory to disk.
    kOpen,    ///< A new segment is added at the back, in host memory.
    kFill,    ///< The next `rows` rows are written to the end of the last segment.
  };
  struct Step {
    Action action = Action::kDone;
    std::size_t index = 0;
    std::int64_t rows = 0;
  };

  explicit SegmentRing(const RingShape& shape);

  /// What to do next where `pending` more rows (0 to capacity) wait to enter.
  [[nodiscard]] Step next(std::int64_t pending) const;
  void apply(const Step& step);
  /// Another capacity, 1 to that of the shape. What is too much leaves with the next steps: call next(0) until done.
  void resize(std::int64_t capacity);
  void clear();

  /// Oldest first.
  [[nodiscard]] const std::deque<Segment>& segments() const noexcept { return segments_; }
  /// Valid rows.
  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  /// Rows at the start of segment 0 that are no longer valid.
  [[nodiscard]] std::int64_t trimmed() const noexcept { return trimmed_; }
  [[nodiscard]] std::int64_t count_on(offload::Tier tier) const;

  /// Most segments that there can ever be, the open one included.
  [[nodiscard]] static std::int64_t segments_max(std::int64_t capacity, std::int64_t segment_rows);
  /// Most segments that can ever be on disk.
  [[nodiscard]] static std::int64_t disk_segments_max(const RingShape& shape);

 private:
  [[nodiscard]] bool sealed(const Segment& segment) const { return segment.rows == shape_.segment_rows; }
  [[nodiscard]] std::int64_t room_in_open() const;

  RingShape shape_;
  std::int64_t capacity_ = 0;  // Now.
  std::int64_t sealed_in_host_max_ = 0;
  std::deque<Segment> segments_;
  std::int64_t size_ = 0;
  std::int64_t trimmed_ = 0;
};

}  // namespace spillway::queue

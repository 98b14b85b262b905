#include <algorithm>
#include <sstream>

#include <spillway/offload/error.hpp>
#include <spillway/offload/tier.hpp>
#include <spillway/queue/bank_plan.hpp>

namespace spillway::queue {

using offload::Tier;

namespace {

void check_options(const BankOptions& options) {
  const auto refuse = [&](const char* what, auto got, const char* wanted) {
    std::ostringstream message;
    message << options.name << ": " << what << " is " << got << ", wanted " << wanted;
    throw ConfigError(message.str());
  };
  if (options.capacity < 1) refuse("capacity", options.capacity, "at least 1 row");
  if (options.dim < 1) refuse("dim", options.dim, "at least 1 element");
  if (options.segment_rows < 1) refuse("segment_rows", options.segment_rows, "at least 1 row");
  if (options.ring_slots < 2) refuse("ring_slots", options.ring_slots, "at least 2 staging buffers");
  switch (options.dtype) {
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
      break;
    default:
      refuse("dtype", c10::toString(options.dtype), "float16, bfloat16, float32 or float64");
  }
}

[[noreturn]] void refuse_budget(const BankOptions& options, const BankPlacement& full, std::uint64_t ring_bytes) {
  const std::uint64_t least = full.tile_bytes + ring_bytes + full.segment_bytes;
  std::ostringstream message;
  message << options.name << ": host memory of " << options.host_bytes << " bytes is too small for " << options.capacity
          << " rows of " << options.dim << " " << c10::toString(options.dtype) << ":\n  all " << full.segments_max
          << " segments of " << full.segment_bytes << " bytes and a tile of " << full.tile_bytes << " need "
          << full.host_bytes() << " bytes";
  if (options.disk_allowed) {
    message << "\n  with the rest on disk, " << options.ring_slots
            << " staging buffers, one segment and the tile need at least " << least
            << " bytes: raise the bank's host memory or lower segment_rows (" << options.segment_rows << ")";
  } else {
    message << "\n  raise the bank's host memory, or let it spill to disk (offload_bank: nvme)";
  }
  throw BudgetExceeded(message.str());
}

}  // namespace

BankPlacement place_bank(const BankOptions& options) {
  check_options(options);
  const auto row_bytes = static_cast<std::uint64_t>(options.dim) * c10::elementSize(options.dtype);
  const std::uint64_t tile_element_bytes = options.dtype == at::kDouble ? sizeof(double) : sizeof(float);

  BankPlacement placement;
  placement.segment_bytes = offload::page_ceil(static_cast<std::uint64_t>(options.segment_rows) * row_bytes);
  placement.segments_max = SegmentRing::segments_max(options.capacity, options.segment_rows);
  placement.tile_bytes = static_cast<std::uint64_t>(std::min(kTileRows, options.capacity)) *
                         static_cast<std::uint64_t>(options.dim) * tile_element_bytes;
  placement.resident_segments = placement.segments_max;
  placement.resident_bytes = static_cast<std::uint64_t>(placement.segments_max) * placement.segment_bytes;
  if (placement.host_bytes() <= options.host_bytes) return placement;

  const std::uint64_t ring_bytes = options.ring_slots * placement.segment_bytes;
  if (!options.disk_allowed || placement.tile_bytes + ring_bytes + placement.segment_bytes > options.host_bytes) {
    refuse_budget(options, placement, ring_bytes);
  }
  placement.ring_bytes = ring_bytes;
  placement.resident_segments = std::min(
      placement.segments_max,
      static_cast<std::int64_t>((options.host_bytes - placement.tile_bytes - ring_bytes) / placement.segment_bytes));
  placement.resident_bytes = static_cast<std::uint64_t>(placement.resident_segments) * placement.segment_bytes;
  const RingShape shape{options.capacity, options.segment_rows, placement.resident_segments};
  placement.disk_bytes = static_cast<std::uint64_t>(SegmentRing::disk_segments_max(shape)) * placement.segment_bytes;
  return placement;
}

BankForecast::BankForecast(const BankOptions& options) : capacity_(options.capacity), segment_bytes_(0), ring_({}) {
  const BankPlacement placement = place_bank(options);
  segment_bytes_ = placement.segment_bytes;
  ring_ = SegmentRing({options.capacity, options.segment_rows, placement.resident_segments});
}

BankTraffic BankForecast::enqueue(std::int64_t rows) {
  BankTraffic traffic;
  std::int64_t pending = std::min(rows, capacity_);
  for (auto step = ring_.next(pending); step.action != SegmentRing::Action::kDone; step = ring_.next(pending)) {
    if (step.action == SegmentRing::Action::kDemote) traffic.written_bytes += segment_bytes_;
    if (step.action == SegmentRing::Action::kFill) pending -= step.rows;
    ring_.apply(step);
  }
  return traffic;
}

BankTraffic BankForecast::scan() const {
  return {static_cast<std::uint64_t>(ring_.count_on(Tier::kDisk)) * segment_bytes_, 0};
}

BankTraffic predict_bank_traffic(const BankOptions& options, std::span<const BankOperation> operations) {
  BankForecast forecast(options);
  BankTraffic sum;
  for (const BankOperation& operation : operations) {
    sum += operation.kind == BankOperation::Kind::kScan ? forecast.scan() : forecast.enqueue(operation.rows);
  }
  return sum;
}

}  // namespace spillway::queue

#include <algorithm>
#include <sstream>

#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>
#include <spillway/offload/tier.hpp>
#include <spillway/queue/bank_plan.hpp>
#include <spillway/queue/row_format.hpp>

namespace spillway::queue {

using offload::Tier;

namespace {

// Far beyond any machine, and far from overflow when the bytes of segments, ring and tile are added up.
constexpr std::int64_t kRowsMax = std::int64_t{1} << 36;
constexpr std::int64_t kDimMax = std::int64_t{1} << 16;
constexpr std::int64_t kRingSlotsMax = 64;

void check_options(const BankOptions& options) {
  const auto check = [&](const char* what, std::int64_t got, std::int64_t least, std::int64_t most) {
    if (got >= least && got <= most) return;
    std::ostringstream message;
    message << options.name << ": " << what << " is " << got << ", wanted " << least << " to " << most;
    throw ConfigError(message.str());
  };
  check("capacity", options.capacity, 1, kRowsMax);
  check("capacity_max", options.capacity_limit(), options.capacity, kRowsMax);
  check("dim", options.dim, 1, kDimMax);
  check("segment_rows", options.segment_rows, 1, kRowsMax);
  check("ring_slots", options.ring_slots, 2, kRingSlotsMax);
  switch (options.dtype) {
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
    case at::kChar:
      return;
    default:
      throw ConfigError(options.name + ": dtype is " + c10::toString(options.dtype) +
                        ", wanted Half, BFloat16, Float, Double or Char");
  }
}

[[noreturn]] void refuse_budget(const BankOptions& options, const BankPlacement& all, std::uint64_t least_bytes) {
  using offload::format_bytes;
  std::ostringstream message;
  message << options.name << ": " << format_bytes(options.host_bytes) << " of host memory do not hold "
          << options.capacity_limit() << " rows of " << options.dim << " " << c10::toString(options.dtype) << ": all "
          << all.segments_max << " segments of " << format_bytes(all.segment_bytes) << " and "
          << format_bytes(all.fixed_bytes()) << " for tile and labels need " << format_bytes(all.host_bytes());
  if (options.disk_allowed) {
    message << ", and with the rest on disk " << options.ring_slots
            << " staging buffers, one segment and these need at least " << format_bytes(least_bytes)
            << ": give the bank more host memory or lower segment_rows (" << options.segment_rows << ")";
  } else {
    message << ": give the bank more host memory or let it spill to disk";
  }
  throw BudgetExceeded(message.str());
}

}  // namespace

void BankOptions::check_resize(std::int64_t wanted) const {
  if (wanted >= 1 && wanted <= capacity_limit()) return;
  throw ConfigError(name + ": cannot resize to " + std::to_string(wanted) + " rows, wanted 1 to " +
                    std::to_string(capacity_limit()) +
                    ": space was set aside for these at construction; BankOptions::capacity_max sets aside more");
}

BankPlacement place_bank(const BankOptions& options) {
  check_options(options);
  const std::int64_t capacity = options.capacity_limit();
  const std::uint64_t row_bytes = RowFormat(options.dtype, options.dim).row_bytes();
  const std::uint64_t tile_element_bytes = options.dtype == at::kDouble ? sizeof(double) : sizeof(float);

  BankPlacement placement;
  placement.segment_bytes = offload::page_ceil(static_cast<std::uint64_t>(options.segment_rows) * row_bytes);
  placement.segments_max = SegmentRing::segments_max(capacity, options.segment_rows);
  // Pages that rows are fetched from go where the tile is: there is room for those of any one row.
  placement.tile_bytes = offload::page_ceil(std::max(
      static_cast<std::uint64_t>(std::min(tile_rows(options.dim), capacity) * options.dim) * tile_element_bytes,
      offload::page_ceil(row_bytes) + offload::kPageBytes));
  if (options.labels) placement.label_bytes = static_cast<std::uint64_t>(capacity) * sizeof(std::int64_t);
  placement.resident_segments = placement.segments_max;
  placement.resident_bytes = static_cast<std::uint64_t>(placement.segments_max) * placement.segment_bytes;
  if (placement.host_bytes() <= options.host_bytes) return placement;

  // For all segments: how many can be on disk depends on what is left, and a sum is 1/512 of its page.
  placement.sum_bytes = page_sum_bytes(placement.resident_bytes);
  const std::uint64_t ring_bytes = options.ring_slots * placement.segment_bytes;
  const std::uint64_t least_bytes = placement.fixed_bytes() + ring_bytes + placement.segment_bytes;
  if (!options.disk_allowed || least_bytes > options.host_bytes) refuse_budget(options, placement, least_bytes);
  placement.ring_bytes = ring_bytes;
  placement.resident_segments = std::min(
      placement.segments_max,
      static_cast<std::int64_t>((options.host_bytes - placement.fixed_bytes() - ring_bytes) / placement.segment_bytes));
  placement.resident_bytes = static_cast<std::uint64_t>(placement.resident_segments) * placement.segment_bytes;
  const RingShape shape{capacity, options.segment_rows, placement.resident_segments};
  placement.disk_bytes = static_cast<std::uint64_t>(SegmentRing::disk_segments_max(shape)) * placement.segment_bytes;
  return placement;
}

BankForecast::BankForecast(const BankOptions& options)
    : capacity_(options.capacity),
      placement_(place_bank(options)),
      ring_({options.capacity_limit(), options.segment_rows, placement_.resident_segments}) {
  ring_.resize(options.capacity);
}

BankTraffic BankForecast::settle(std::int64_t pending) {
  BankTraffic traffic;
  for (auto step = ring_.next(pending); step.action != SegmentRing::Action::kDone; step = ring_.next(pending)) {
    if (step.action == SegmentRing::Action::kDemote) traffic.written_bytes += placement_.segment_bytes;
    if (step.action == SegmentRing::Action::kFill) pending -= step.rows;
    ring_.apply(step);
  }
  return traffic;
}

BankTraffic BankForecast::enqueue(std::int64_t rows) { return settle(std::min(rows, capacity_)); }

void BankForecast::resize(std::int64_t capacity) {
  capacity_ = capacity;
  ring_.resize(capacity);
  settle(0);
}

BankTraffic BankForecast::scan() const {
  return {static_cast<std::uint64_t>(ring_.count_on(Tier::kDisk)) * placement_.segment_bytes, 0};
}

BankTraffic predict_bank_traffic(const BankOptions& options, std::span<const BankOperation> operations) {
  BankForecast forecast(options);
  BankTraffic sum;
  for (const BankOperation& operation : operations) {
    switch (operation.kind) {
      case BankOperation::Kind::kScan:
        sum += forecast.scan();
        break;
      case BankOperation::Kind::kEnqueue:
        sum += forecast.enqueue(operation.rows);
        break;
      case BankOperation::Kind::kResize:
        forecast.resize(operation.rows);
        break;
    }
  }
  return sum;
}

}  // namespace spillway::queue

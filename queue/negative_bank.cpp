#include <algorithm>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/key_admission.hpp>
#include <spillway/queue/negative_bank.hpp>

namespace spillway::queue {

using offload::Access;
using offload::Lease;
using offload::Tier;
using Action = SegmentRing::Action;

namespace {

offload::BlockStoreOptions store_options(const BankOptions& options, const BankPlacement& placement) {
  offload::BlockStoreOptions store;
  store.name = options.name;
  store.lane = offload::Lane::kBank;
  store.ring_slots = placement.ring_bytes == 0 ? 0 : options.ring_slots;
  store.slot_bytes = placement.ring_bytes == 0 ? 0 : placement.segment_bytes;
  store.resident_bytes = placement.resident_bytes;
  store.disk_bytes = placement.disk_bytes;
  store.reuse_buffers = false;  // The forecast counts every cold segment of every scan.
  return store;
}

/// True for as long as it lives; refuses to nest.
class Busy {
 public:
  explicit Busy(bool& flag) : flag_(flag) { flag_ = true; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() { flag_ = false; }

 private:
  bool& flag_;
};

}  // namespace

NegativeBank::NegativeBank(std::shared_ptr<offload::Tiers> tiers, const BankOptions& options)
    : tiers_(std::move(tiers)),
      options_(options),
      placement_(place_bank(options)),
      format_(options.dtype, options.dim),
      ring_({options.capacity_limit(), options.segment_rows, placement_.resident_segments}),
      store_(tiers_, store_options(options_, placement_)) {
  make_tile(options_.dtype == at::kDouble ? at::kDouble : at::kFloat);
  if (placement_.sum_bytes > 0) {
    sum_reservation_ = tiers_->host().reserve(placement_.sum_bytes, options_.name + " page checksums");
  }
  if (options_.labels) {
    label_reservation_ = tiers_->host().reserve(placement_.label_bytes, options_.name + " labels");
    labels_.emplace(options_.capacity_limit());
  }
  options_.capacity_max = options.capacity_limit();  // Stays what it is when the capacity changes.
  ring_.resize(options_.capacity);
}

NegativeBank::~NegativeBank() = default;

std::uint64_t NegativeBank::predicted_read_bytes_per_scan() const {
  return static_cast<std::uint64_t>(ring_.count_on(Tier::kDisk)) * placement_.segment_bytes;
}

void NegativeBank::enqueue(const at::Tensor& keys, const at::Tensor& labels) {
  const at::NoGradGuard no_grad;
  const AdmittedKeys admitted = admit_keys(options_, keys, labels);
  if (admitted.rejected > 0) note_rejected(admitted.rejected, rejection_warning(options_, admitted, keys.size(0)));
  append(admitted.rows);
}

void NegativeBank::note_rejected(std::int64_t rows, const std::string& warning) {
  if (counts_.rejected_rows == 0 && rows > 0 && !warning.empty()) tiers_->log(warning);
  counts_.rejected_rows += static_cast<std::uint64_t>(rows);
}

void NegativeBank::append(const StoredRows& rows) {
  SPILLWAY_CHECK(!scanning_, "enqueue from inside a scan of the same bank");
  check_stored(options_, rows);
  const at::NoGradGuard no_grad;
  const std::int64_t count = rows.size();
  if (count == 0) return;
  ++version_;
  std::int64_t pending = std::min(count, options_.capacity);
  const auto accepted = [&](std::int64_t accepted_rows) {
    position_ = (position_ + accepted_rows) % options_.capacity;
    counts_.accepted_rows += static_cast<std::uint64_t>(accepted_rows);
  };
  accepted(count - pending);
  for (auto step = ring_.next(pending); step.action != Action::kDone; step = ring_.next(pending)) {
    execute(step, rows, count - pending);
    ring_.apply(step);
    if (step.action != Action::kFill) continue;
    pending -= step.rows;
    next_number_ += step.rows;
    accepted(step.rows);
  }
}

void NegativeBank::resize(std::int64_t capacity) {
  SPILLWAY_CHECK(!scanning_, "resize from inside a scan of the same bank");
  options_.check_resize(capacity);
  if (capacity == options_.capacity) return;
  options_.capacity = capacity;
  ring_.resize(capacity);
  settle();
  position_ = ring_.size() % capacity;
}

void NegativeBank::keep_newest(std::int64_t rows) {
  SPILLWAY_CHECK(!scanning_, "rows are forgotten from inside a scan of the same bank");
  SPILLWAY_CHECK(rows >= 0, "fewer than no rows are to be kept");
  if (rows >= ring_.size()) return;
  ++version_;
  ring_.apply({Action::kTrim, 0, ring_.size() - rows});
  settle();
}

void NegativeBank::settle() {
  const std::int64_t before = ring_.size();
  for (auto step = ring_.next(0); step.action != Action::kDone; step = ring_.next(0)) {
    execute(step, {}, 0);
    ring_.apply(step);
  }
  if (ring_.size() != before) ++version_;
}

void NegativeBank::restore_counts(std::int64_t position, const BankCounts& counts) {
  if (position < 0 || position >= options_.capacity) {
    throw ConfigError(options_.name + ": cannot go on at position " + std::to_string(position) + ", wanted 0 to " +
                      std::to_string(options_.capacity - 1) + ", as the bank has " + std::to_string(options_.capacity) +
                      " places");
  }
  position_ = position;
  const std::uint64_t scans = counts_.scans;
  counts_ = counts;
  counts_.scans = scans;
}

void NegativeBank::execute(const SegmentRing::Step& step, const StoredRows& rows, std::int64_t first) {
  switch (step.action) {
    case Action::kDone:
    case Action::kTrim:
      break;
    case Action::kDrop:
      give_up_pass();
      store_.remove(blocks_.front());
      blocks_.pop_front();
      page_sums_.pop_front();
      break;
    case Action::kDemote:
      give_up_pass();
      remember_sums(step.index);
      store_.set_home(blocks_[step.index], Tier::kDisk);
      break;
    case Action::kOpen: {
      const std::uint64_t bytes = static_cast<std::uint64_t>(options_.segment_rows) * format_.row_bytes();
      blocks_.push_back(store_.add(bytes, Tier::kHost, "segment " + std::to_string(segments_opened_)));
      page_sums_.emplace_back();
      ++segments_opened_;
      break;
    }
    case Action::kFill: {
      const Lease lease = store_.acquire(blocks_[step.index], Access::kReadWrite);
      const auto written = static_cast<std::uint64_t>(ring_.segments()[step.index].rows);
      const StoredRows part = rows.narrow(first, step.rows);
      RowFormat::copy(part, format_.view(lease.bytes().data() + written * format_.row_bytes(), step.rows));
      if (labels_) labels_->write(next_number_, part.labels);
      break;
    }
  }
}

void NegativeBank::prefetch() {
  if (pass_ == Pass::kAnnounced) return;
  std::vector<offload::BlockId> cold;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (ring_.segments()[i].home == Tier::kDisk) cold.push_back(blocks_[i]);
  }
  if (cold.empty()) return;
  store_.begin(cold, Access::kRead);
  pass_ = Pass::kAnnounced;
}

void NegativeBank::give_up_pass() {
  if (pass_ == Pass::kNone) return;
  store_.begin({}, Access::kRead);
  pass_ = Pass::kNone;
}

void NegativeBank::visit_runs(const RunVisitor& visit) {
  SPILLWAY_CHECK(!scanning_, "a scan inside a scan of the same bank");
  const at::NoGradGuard no_grad;
  const Busy busy(scanning_);
  ++counts_.scans;
  prefetch();
  if (pass_ == Pass::kAnnounced) pass_ = Pass::kTakenUp;  // And stays so if the scan is broken off.
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Lease lease = store_.acquire(blocks_[i], Access::kRead);
    const std::int64_t begin = i == 0 ? ring_.trimmed() : 0;
    const std::int64_t count = ring_.segments()[i].rows - begin;
    std::byte* const start = lease.bytes().data() + static_cast<std::uint64_t>(begin) * format_.row_bytes();
    if (count > 0) visit(format_.view(start, count));
  }
  pass_ = Pass::kNone;
}

void NegativeBank::scan(at::ScalarType compute_dtype, const Visitor& visit) {
  SPILLWAY_CHECK(compute_dtype == at::kFloat || compute_dtype == at::kDouble, "a scan computes in float32 or float64");
  SPILLWAY_CHECK(!scanning_, "a scan inside a scan of the same bank");
  make_tile(compute_dtype);
  const std::int64_t full_tile = tile_.size(0);
  std::int64_t in_tile = 0;
  std::int64_t shown = 0;
  const auto show = [&] {
    visit({tile_.narrow(0, 0, in_tile), labels_of(shown, in_tile), shown});
    shown += in_tile;
    in_tile = 0;
  };
  visit_runs([&](const StoredRows& run) {
    for (std::int64_t row = 0; row < run.size();) {
      const std::int64_t count = std::min(full_tile - in_tile, run.size() - row);
      at::Tensor part = tile_.narrow(0, in_tile, count);
      RowFormat::decode(run.narrow(row, count), part);
      row += count;
      in_tile += count;
      if (in_tile == full_tile) show();
    }
  });
  if (in_tile > 0) show();
}

void NegativeBank::scan_stored(const StoredVisitor& visit) {
  std::int64_t shown = 0;
  visit_runs([&](const StoredRows& run) {
    visit({run.values, run.scales, labels_of(shown, run.size())});
    shown += run.size();
  });
}

at::Tensor NegativeBank::labels_of(std::int64_t first, std::int64_t count) const {
  if (!labels_) return {};
  at::Tensor labels = at::empty({count}, at::TensorOptions(at::kLong));
  labels_->read(next_number_ - ring_.size() + first, labels);
  return labels;
}

void NegativeBank::clear() {
  SPILLWAY_CHECK(!scanning_, "clear from inside a scan of the same bank");
  ++version_;
  give_up_pass();
  for (const offload::BlockId block : blocks_) store_.remove(block);
  blocks_.clear();
  page_sums_.clear();
  ring_.clear();
  position_ = 0;
}

void NegativeBank::restart(std::int64_t rows) {
  SPILLWAY_CHECK(rows >= 0, "fewer than no rows came before");
  clear();
  for (std::int64_t left = rows % options_.segment_rows; left > 0;) {  // No row of these is seen by anybody.
    const std::int64_t count = std::min(left, options_.capacity);
    StoredRows blank;
    blank.values = at::zeros({count, dim()}, at::TensorOptions(dtype()));
    if (dtype() == at::kChar) blank.scales = at::zeros({count}, at::TensorOptions(at::kFloat));
    if (has_labels()) blank.labels = at::zeros({count}, at::TensorOptions(at::kLong));
    append(blank);
    keep_newest(0);
    left -= count;
  }
}

void NegativeBank::remember_sums(std::size_t segment) {
  const Lease lease = store_.acquire(blocks_[segment], Access::kRead);
  page_sums_[segment] = PageSums(segments_opened_ - blocks_.size() + segment, lease.bytes());
}

void NegativeBank::flush() { store_.flush(); }

void NegativeBank::make_tile(at::ScalarType dtype) {
  if (tile_.defined() && tile_.scalar_type() == dtype) return;
  const std::int64_t rows = std::min(tile_rows(options_.dim), options_.capacity_limit());
  const std::uint64_t wanted =
      std::max(placement_.tile_bytes,
               offload::page_ceil(static_cast<std::uint64_t>(rows * options_.dim) * c10::elementSize(dtype)));
  if (wanted != tile_memory_.bytes().size()) {
    tile_.reset();
    tile_memory_ = {};
    tile_reservation_ = {};
    tile_reservation_ = tiers_->host().reserve(wanted, options_.name + " tile");
    tile_memory_ = offload::AlignedBlock(wanted);
  }
  tile_ = at::from_blob(tile_memory_.bytes().data(), {rows, options_.dim}, at::TensorOptions(dtype));
}

}  // namespace spillway::queue

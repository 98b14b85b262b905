#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/nonzero.h>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>
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

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "(undefined tensor)";
  std::ostringstream text;
  text << tensor.sizes() << ", " << tensor.dtype().name() << " on " << tensor.device();
  return text.str();
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
      ring_({options.capacity, options.segment_rows, placement_.resident_segments}),
      store_(tiers_, store_options(options_, placement_)) {
  make_tile(options_.dtype == at::kDouble ? at::kDouble : at::kFloat);
  if (options_.labels) {
    label_reservation_ = tiers_->host().reserve(placement_.label_bytes, options_.name + " labels");
    labels_.emplace(options_.capacity);
  }
}

NegativeBank::~NegativeBank() = default;

std::uint64_t NegativeBank::predicted_read_bytes_per_scan() const {
  return static_cast<std::uint64_t>(ring_.count_on(Tier::kDisk)) * placement_.segment_bytes;
}

void NegativeBank::check_keys(const at::Tensor& keys, const at::Tensor& labels) const {
  const bool fits = keys.defined() && keys.dim() == 2 && keys.size(1) == options_.dim && keys.is_floating_point() &&
                    keys.device().is_cpu() && keys.layout() == at::kStrided;
  if (!fits) {
    throw ConfigError(options_.name + ": cannot enqueue keys of shape " + describe(keys) + "; wanted [n, " +
                      std::to_string(options_.dim) +
                      "], a floating-point dtype on cpu: give the bank the dimension of the encoder's output");
  }
  if (labels.defined() != options_.labels) {
    throw ConfigError(options_.name + (options_.labels ? ": keys come without labels, and the bank keeps a label for "
                                                         "each row: pass labels, or leave BankOptions::labels off"
                                                       : ": keys come with labels, and the bank has no place for "
                                                         "them: set BankOptions::labels"));
  }
  const bool labels_fit = !labels.defined() || (labels.dim() == 1 && labels.size(0) == keys.size(0) &&
                                                labels.scalar_type() == at::kLong && labels.device().is_cpu());
  if (!labels_fit) {
    throw ConfigError(options_.name + ": cannot enqueue labels of shape " + describe(labels) + "; wanted [" +
                      std::to_string(keys.size(0)) + "] int64 on cpu: one label for each key");
  }
}

NegativeBank::Keys NegativeBank::accept(const at::Tensor& keys, const at::Tensor& labels) {
  // Checked as stored: a finite float32 beyond 65504 is infinite in float16.
  const at::Tensor rows = keys.detach().to(options_.dtype).contiguous();
  const at::Tensor finite = at::isfinite(rows).all(1);
  const std::int64_t bad = rows.size(0) - finite.sum().item<std::int64_t>();
  if (bad == 0) return {rows, labels};
  if (rejected_rows_ == 0) {
    const std::int64_t first = at::nonzero(finite.logical_not())[0].item<std::int64_t>();
    tiers_->log(options_.name + ": warning: row " + std::to_string(first) + " of a batch of " +
                std::to_string(rows.size(0)) + " keys is not finite as " + c10::toString(options_.dtype) + " (" +
                std::to_string(bad) + " such rows); such rows are dropped and counted, this is said once");
  }
  rejected_rows_ += static_cast<std::uint64_t>(bad);
  const at::Tensor kept = at::nonzero(finite).squeeze(1);
  return {rows.index_select(0, kept), labels.defined() ? labels.index_select(0, kept) : labels};
}

void NegativeBank::enqueue(const at::Tensor& keys, const at::Tensor& labels) {
  SPILLWAY_CHECK(!scanning_, "enqueue from inside a scan of the same bank");
  const at::NoGradGuard no_grad;
  check_keys(keys, labels);
  const Keys accepted = accept(keys, labels);
  const std::int64_t rows = accepted.rows.size(0);
  std::int64_t pending = std::min(rows, options_.capacity);
  position_ = (position_ + rows - pending) % options_.capacity;
  for (auto step = ring_.next(pending); step.action != Action::kDone; step = ring_.next(pending)) {
    execute(step, accepted, rows - pending);
    ring_.apply(step);
    if (step.action != Action::kFill) continue;
    pending -= step.rows;
    position_ = (position_ + step.rows) % options_.capacity;
    next_number_ += step.rows;
  }
}

void NegativeBank::execute(const SegmentRing::Step& step, const Keys& keys, std::int64_t first) {
  switch (step.action) {
    case Action::kDone:
    case Action::kTrim:
      break;
    case Action::kDrop:
      give_up_pass();
      store_.remove(blocks_.front());
      blocks_.pop_front();
      break;
    case Action::kDemote:
      give_up_pass();
      store_.set_home(blocks_[step.index], Tier::kDisk);
      break;
    case Action::kOpen: {
      const std::uint64_t bytes =
          static_cast<std::uint64_t>(options_.segment_rows * options_.dim) * c10::elementSize(options_.dtype);
      blocks_.push_back(store_.add(bytes, Tier::kHost, "segment " + std::to_string(segments_opened_)));
      ++segments_opened_;
      break;
    }
    case Action::kFill: {
      const Lease lease = store_.acquire(blocks_[step.index], Access::kReadWrite);
      const std::int64_t written = ring_.segments()[step.index].rows;
      segment_rows_view(lease, written, step.rows).copy_(keys.rows.narrow(0, first, step.rows));
      if (labels_) labels_->write(next_number_, keys.labels.narrow(0, first, step.rows));
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

void NegativeBank::scan(at::ScalarType compute_dtype, const Visitor& visit) {
  SPILLWAY_CHECK(!scanning_, "a scan inside a scan of the same bank");
  SPILLWAY_CHECK(compute_dtype == at::kFloat || compute_dtype == at::kDouble, "a scan computes in float32 or float64");
  const at::NoGradGuard no_grad;
  const Busy busy(scanning_);
  make_tile(compute_dtype);
  prefetch();
  if (pass_ == Pass::kAnnounced) pass_ = Pass::kTakenUp;  // And stays so if the scan is broken off.

  const std::int64_t tile_rows = tile_.size(0);
  std::int64_t in_tile = 0;
  std::int64_t shown = 0;
  const auto show = [&] {
    visit({tile_.narrow(0, 0, in_tile), labels_of(shown, in_tile), shown});
    shown += in_tile;
    in_tile = 0;
  };
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Lease lease = store_.acquire(blocks_[i], Access::kRead);
    const std::int64_t end = ring_.segments()[i].rows;
    for (std::int64_t row = i == 0 ? ring_.trimmed() : 0; row < end;) {
      const std::int64_t count = std::min(tile_rows - in_tile, end - row);
      tile_.narrow(0, in_tile, count).copy_(segment_rows_view(lease, row, count));
      row += count;
      in_tile += count;
      if (in_tile == tile_rows) show();
    }
  }
  pass_ = Pass::kNone;
  if (in_tile > 0) show();
}

at::Tensor NegativeBank::labels_of(std::int64_t first, std::int64_t count) const {
  if (!labels_) return {};
  at::Tensor labels = at::empty({count}, at::TensorOptions(at::kLong));
  labels_->read(next_number_ - ring_.size() + first, labels);
  return labels;
}

void NegativeBank::clear() {
  SPILLWAY_CHECK(!scanning_, "clear from inside a scan of the same bank");
  give_up_pass();
  for (const offload::BlockId block : blocks_) store_.remove(block);
  blocks_.clear();
  ring_.clear();
  position_ = 0;
}

void NegativeBank::flush() { store_.flush(); }

void NegativeBank::make_tile(at::ScalarType dtype) {
  if (tile_.defined() && tile_.scalar_type() == dtype) return;
  tile_.reset();
  tile_reservation_ = {};
  const std::int64_t rows = std::min(kTileRows, options_.capacity);
  const std::uint64_t bytes = static_cast<std::uint64_t>(rows * options_.dim) * c10::elementSize(dtype);
  tile_reservation_ = tiers_->host().reserve(bytes, options_.name + " tile");
  tile_ = at::empty({rows, options_.dim}, at::TensorOptions(dtype));
}

at::Tensor NegativeBank::segment_rows_view(const Lease& lease, std::int64_t first, std::int64_t count) const {
  const std::size_t row_bytes = static_cast<std::size_t>(options_.dim) * c10::elementSize(options_.dtype);
  std::byte* const start = lease.bytes().data() + static_cast<std::size_t>(first) * row_bytes;
  return at::from_blob(start, {count, options_.dim}, at::TensorOptions(options_.dtype));
}

}  // namespace spillway::queue

#include <spillway/optimizer/gradient_accumulators.hpp>

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <spillway/offload/check.hpp>
#include <spillway/offload/planner.hpp>

namespace spillway::optimizer {
namespace {

using offload::Access;
using offload::BlockId;
using offload::BlockStore;
using offload::Lease;

const char* const kSumsName = "gradients";
constexpr std::uint64_t kSumAlignment = 64;

std::uint64_t sum_bytes(const SumSlot& slot) {
  std::uint64_t bytes = c10::elementSize(slot.type);
  for (const std::int64_t size : slot.sizes) {
    bytes *= static_cast<std::uint64_t>(size);
  }
  return (bytes + kSumAlignment - 1) / kSumAlignment * kSumAlignment;
}

void lay_out(SumCell& cell) {
  cell.bytes = 0;
  for (SumSlot& slot : cell.slots) {
    slot.offset = cell.bytes;
    cell.bytes += sum_bytes(slot);
  }
  cell.bytes = std::max(cell.bytes, kSumAlignment);  // Parameters without elements alone.
}

}  // namespace

GradientAccumulators::GradientAccumulators(std::shared_ptr<offload::Tiers> tiers, Options options)
    : tiers_(std::move(tiers)), options_(options) {}

void GradientAccumulators::make_room(std::vector<SumCell> cells) {
  if (cells.empty()) {
    return;
  }
  std::vector<std::uint64_t> block_bytes;
  for (SumCell& cell : cells) {
    for (SumSlot& slot : cell.slots) {
      slot.type = options_.as_they_come ? slot.gradient_type : slot.sum_type;
    }
    lay_out(cell);
    block_bytes.push_back(cell.bytes);
  }
  const std::uint64_t ring_bytes =
      options_.ring_slots * offload::page_ceil(*std::max_element(block_bytes.begin(), block_bytes.end()));
  // Who sends gradients to the disk wants the memory: nothing but the ring stays.
  const offload::Placement placed =
      offload::place({.name = kSumsName,
                      .block_bytes = block_bytes,
                      .host_bytes = options_.on_disk ? std::min(ring_bytes, tiers_->host().available_bytes())
                                                     : tiers_->host().available_bytes(),
                      .ring_slots = options_.ring_slots,
                      .disk_allowed = options_.on_disk});
  offload::BlockStoreOptions store;
  store.name = kSumsName;
  store.ring_slots = options_.ring_slots;
  store.slot_bytes = placed.ring_bytes / options_.ring_slots;
  store.resident_bytes = placed.resident_bytes;
  store.disk_bytes = placed.disk_bytes;
  store.reuse_buffers = false;
  stores_.push_back(std::make_unique<BlockStore>(tiers_, std::move(store)));
  for (std::size_t c = 0; c < cells.size(); ++c) {
    SumCell& cell = cells[c];
    cell.store = stores_.back().get();
    cell.block = cell.store->add(cell.bytes, placed.home[c], "of bucket " + std::to_string(cell.bucket));
    std::vector<SumCell>& bucket = cells_of(cell.bucket);
    for (std::size_t s = 0; s < cell.slots.size(); ++s) {
      places_[cell.slots[s].parameter] = {cell.bucket, bucket.size(), s};
    }
    bucket.push_back(std::move(cell));
  }
  count_ += cells.size();
  left_ += left_ > 0 ? cells.size() : 0;  // The pass comes to them, unannounced.
  host_bytes_ += placed.resident_bytes + placed.ring_bytes;
  disk_bytes_ += placed.disk_bytes;
}

void GradientAccumulators::prepare_round() {
  if (options_.as_they_come && holds_sums()) {
    widen();
  }
}

// In one pass over what is here, the one that is announced.
void GradientAccumulators::widen() {
  GradientAccumulators wide(tiers_, {options_.on_disk, options_.ring_slots, /*as_they_come=*/false});
  std::vector<SumCell> cells;
  for (const std::vector<SumCell>& bucket : cells_) {
    cells.insert(cells.end(), bucket.begin(), bucket.end());
  }
  for (SumCell& cell : cells) {
    for (SumSlot& slot : cell.slots) {
      slot.content = slot.content == SumContent::kSum ? SumContent::kNone : slot.content;  // Not there yet.
    }
  }
  wide.make_room(std::move(cells));
  for (std::size_t b = 0; b < cells_.size(); ++b) {
    visit(b, [&](const std::vector<Sum>& sums) {
      auto sum = sums.begin();
      for (SumCell& cell : wide.cells_of(b)) {
        std::vector<std::vector<at::Tensor>> terms;
        for (std::size_t s = 0; s < cell.slots.size(); ++s, ++sum) {
          terms.push_back(sum->slot.content == SumContent::kSum ? std::vector{sum->tensor} : std::vector<at::Tensor>());
        }
        wide.add(cell, terms);
      }
    });
  }
  *this = std::move(wide);
}

void GradientAccumulators::begin(Access access) {
  for (const auto& store : stores_) {
    std::vector<BlockId> order;
    for (const std::vector<SumCell>& bucket : cells_) {
      for (const SumCell& cell : bucket) {
        if (cell.store == store.get()) {
          order.push_back(cell.block);
        }
      }
    }
    store->begin(order, access);
  }
  access_ = access;
  left_ = count_;
}

Lease GradientAccumulators::acquire(const SumCell& cell, Access access) {
  if (left_ == 0 || (left_ == count_ && access != access_)) {
    begin(access);
  }
  Lease lease = cell.store->acquire(cell.block, access_);
  --left_;
  return lease;
}

bool GradientAccumulators::holds_sums() const noexcept {
  return std::any_of(cells_.begin(), cells_.end(), [](const std::vector<SumCell>& bucket) {
    return std::any_of(bucket.begin(), bucket.end(), [](const SumCell& cell) {
      return std::any_of(cell.slots.begin(), cell.slots.end(),
                         [](const SumSlot& slot) { return slot.content == SumContent::kSum; });
    });
  });
}

at::Tensor GradientAccumulators::view(const SumSlot& slot, std::span<std::byte> block) {
  return at::from_blob(block.data() + slot.offset, slot.sizes, slot.strides, at::device(at::kCPU).dtype(slot.type));
}

void GradientAccumulators::add(SumCell& cell, std::span<const std::vector<at::Tensor>> terms) {
  SPILLWAY_CHECK(terms.size() == cell.slots.size(), "there is a list of terms for each slot");
  const at::NoGradGuard no_grad;
  // Later cells of a pass find sums that it has made itself.
  const bool begins = left_ == 0 || left_ == count_;
  Lease lease = acquire(cell, !begins ? access_ : holds_sums() ? Access::kReadWrite : Access::kOverwrite);
  std::vector<SumContent> contents;
  try {
    for (std::size_t s = 0; s < terms.size(); ++s) {
      SumContent content = cell.slots[s].content;
      for (const at::Tensor& term : terms[s]) {
        at::Tensor sum = view(cell.slots[s], lease.bytes());
        if (content == SumContent::kZero) {
          sum.zero_();
        }
        if (content == SumContent::kZero || content == SumContent::kSum) {
          SPILLWAY_CHECK(content == SumContent::kZero || cell.slots[s].type == cell.slots[s].sum_type,
                         "sums have a type of their own");
          sum.add_(term);
        } else {
          sum.copy_(term);
        }
        content = SumContent::kSum;
      }
      contents.push_back(content);
    }
  } catch (...) {
    lease.abandon();
    throw;
  }
  if (std::all_of(terms.begin(), terms.end(), [](const auto& list) { return list.empty(); })) {
    lease.abandon();
    return;
  }
  lease.release();
  for (std::size_t s = 0; s < contents.size(); ++s) {
    cell.slots[s].content = contents[s];
  }
}

void GradientAccumulators::announce() {
  if (left_ == 0 && count_ > 0 && holds_sums()) {
    begin(Access::kReadWrite);
  }
}

void GradientAccumulators::visit(std::size_t bucket, const std::function<void(const std::vector<Sum>& sums)>& look) {
  const at::NoGradGuard no_grad;
  std::vector<Lease> leases;
  // Nothing is written back, whatever happens: the blocks stay as they were.
  struct Abandon {
    std::vector<Lease>& leases;
    explicit Abandon(std::vector<Lease>& all) : leases(all) {}
    Abandon(const Abandon&) = delete;
    Abandon& operator=(const Abandon&) = delete;
    ~Abandon() {
      for (Lease& lease : leases) {
        lease.abandon();
      }
    }
  };
  const Abandon abandon(leases);
  std::vector<Sum> sums;
  for (const SumCell& cell : cells_of(bucket)) {
    leases.push_back(acquire(cell, Access::kReadWrite));
    for (const SumSlot& slot : cell.slots) {
      sums.push_back({slot, view(slot, leases.back().bytes())});
    }
  }
  look(sums);
}

void GradientAccumulators::use_up() noexcept {
  for (std::vector<SumCell>& bucket : cells_) {
    for (SumCell& cell : bucket) {
      for (SumSlot& slot : cell.slots) {
        slot.content = slot.content == SumContent::kNone ? SumContent::kNone : SumContent::kStale;
      }
    }
  }
}

void GradientAccumulators::drop(bool keep_zeros) noexcept {
  for (std::vector<SumCell>& bucket : cells_) {
    for (SumCell& cell : bucket) {
      for (SumSlot& slot : cell.slots) {
        slot.content = keep_zeros && slot.content != SumContent::kNone ? SumContent::kZero : SumContent::kNone;
      }
    }
  }
}

std::vector<SumCell>& GradientAccumulators::cells_of(std::size_t bucket) {
  cells_.resize(std::max(cells_.size(), bucket + 1));
  return cells_[bucket];
}

const SumSlot* GradientAccumulators::find(std::size_t parameter) const {
  const auto found = places_.find(parameter);
  return found == places_.end() ? nullptr : &cells_[found->second.bucket][found->second.cell].slots[found->second.slot];
}

}  // namespace spillway::optimizer

// Single rows of a bank: from memory, and from disk in few reads of the pages that they lie on.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty.h>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/loss_arguments.hpp>
#include <spillway/queue/negative_bank.hpp>
#include <spillway/queue/page_runs.hpp>

namespace spillway::queue {

using offload::kPageBytes;
using offload::Tier;

namespace {

void check_indices(const std::string& name, const at::Tensor& indices, std::int64_t size) {
  const bool fits =
      indices.defined() && indices.dim() == 1 && indices.scalar_type() == at::kLong && indices.device().is_cpu();
  if (!fits) {
    throw ConfigError(name + ": cannot give the rows with the indices " + tensor_text(indices) +
                      ", wanted [m] int64 on cpu: places among the valid rows, counted from the oldest");
  }
  if (indices.numel() == 0) return;
  const auto least = indices.min().item<std::int64_t>();
  const auto most = indices.max().item<std::int64_t>();
  if (least >= 0 && most < size) return;
  throw ConfigError(name + ": cannot give row " + std::to_string(least < 0 ? least : most) + " of " +
                    std::to_string(size) + " valid rows, which are counted from 0, the oldest");
}

}  // namespace

// Copies rows in ascending order of their indices into `memory`, one behind another, as many as find room in the buffer
// that pages from disk are read into; returns how many.
std::int64_t NegativeBank::fetch(std::span<const std::int64_t> ascending, std::byte* memory) {
  struct Copy {
    std::uint64_t from = 0;  // In the buffer.
    std::byte* to = nullptr;
  };
  const std::uint64_t row_bytes = format_.row_bytes();
  PageRuns runs(tile_memory_.bytes().size() / kPageBytes);
  std::vector<Copy> copies;
  offload::Lease lease;
  std::size_t leased = blocks_.size();
  std::int64_t done = 0;
  for (const std::int64_t index : ascending) {
    const std::int64_t place = index + ring_.trimmed();  // All segments but the newest are full.
    const auto segment = static_cast<std::size_t>(place / options_.segment_rows);
    const std::uint64_t offset = static_cast<std::uint64_t>(place % options_.segment_rows) * row_bytes;
    std::byte* const to = memory + static_cast<std::uint64_t>(done) * row_bytes;
    if (ring_.segments()[segment].home == Tier::kHost) {
      if (leased != segment) lease = {};
      if (leased != segment) lease = store_.acquire(blocks_[segment], offload::Access::kRead);
      leased = segment;
      std::memcpy(to, lease.bytes().data() + offset, row_bytes);
    } else {
      const auto from = runs.add(segment, offset, row_bytes);
      if (!from) break;
      copies.push_back({*from, to});
    }
    ++done;
  }
  read_runs(runs.runs());
  for (const Copy& copy : copies) std::memcpy(copy.to, tile_memory_.bytes().data() + copy.from, row_bytes);
  return done;
}

void NegativeBank::read_runs(std::span<const PageRuns::Run> runs) {
  if (runs.empty()) return;
  const std::span<std::byte> buffer = tile_memory_.bytes();
  std::vector<offload::PageRun> reads;
  for (const PageRuns::Run& run : runs) {
    reads.push_back({blocks_[run.segment], run.first_page * kPageBytes,
                     buffer.subspan(run.buffer_page * kPageBytes, run.pages * kPageBytes)});
  }
  store_.read_pages(reads);
  for (const PageRuns::Run& run : runs) {
    for (std::uint64_t page = 0; page < run.pages; ++page) {
      const auto bytes = buffer.subspan((run.buffer_page + page) * kPageBytes, kPageBytes);
      if (page_sums_[run.segment].match(run.first_page + page, bytes)) continue;
      throw Corruption(options_.name + ": page " + std::to_string(run.first_page + page) + " of cold segment " +
                       std::to_string(run.segment) +
                       " (counted from the oldest) came back damaged from the disk: "
                       "its checksum is another than when it was written; nothing of it was used. Check the drive and "
                       "the memory, and resume from a checkpoint");
    }
  }
}

void NegativeBank::fetch_all(const at::Tensor& indices, const FetchVisitor& visit) {
  SPILLWAY_CHECK(!scanning_, "rows are asked for from inside a scan of the same bank");
  const std::int64_t wanted = indices.size(0);
  const at::Tensor order = at::argsort(indices);
  const at::Tensor ascending = indices.index_select(0, order);
  const std::span<const std::int64_t> all(ascending.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(wanted));
  const auto row_bytes = static_cast<std::int64_t>(format_.row_bytes());
  const at::Tensor memory = at::empty({std::min(wanted, kTileRows) * row_bytes}, at::TensorOptions(at::kByte));
  auto* const bytes = static_cast<std::byte*>(memory.mutable_data_ptr());
  for (std::int64_t done = 0; done < wanted;) {
    const std::int64_t most = std::min(kTileRows, wanted - done);
    const std::int64_t count =
        fetch(all.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(most)), bytes);
    visit(format_.view(bytes, count), order.narrow(0, done, count));
    done += count;
  }
}

at::Tensor NegativeBank::rows(const at::Tensor& indices, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  check_indices(options_.name, indices, ring_.size());
  at::Tensor out = at::empty({indices.size(0), options_.dim}, at::TensorOptions(dtype));
  fetch_all(indices, [&](const StoredRows& rows, const at::Tensor& places) {
    at::Tensor values = at::empty({rows.size(), options_.dim}, out.options());
    RowFormat::decode(rows, values);
    out.index_copy_(0, places, values);
  });
  return out;
}

StoredRows NegativeBank::stored_rows(const at::Tensor& indices) {
  const at::NoGradGuard no_grad;
  check_indices(options_.name, indices, ring_.size());
  StoredRows out;
  out.values = at::empty({indices.size(0), options_.dim}, at::TensorOptions(options_.dtype));
  if (options_.dtype == at::kChar) out.scales = at::empty({indices.size(0)}, at::TensorOptions(at::kFloat));
  fetch_all(indices, [&](const StoredRows& rows, const at::Tensor& places) {
    out.values.index_copy_(0, places, rows.values.contiguous());
    if (out.scales.defined()) out.scales.index_copy_(0, places, rows.scales.contiguous());
  });
  out.labels = labels(indices);
  return out;
}

at::Tensor NegativeBank::labels(const at::Tensor& indices) const {
  check_indices(options_.name, indices, ring_.size());
  return labels_ ? labels_->at_numbers(indices.add(next_number_ - ring_.size())) : at::Tensor();
}

}  // namespace spillway::queue

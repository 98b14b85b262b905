#include <queue/bank_fixture.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>

namespace spillway::test {

std::string to_string(Storage storage) {
  switch (storage) {
    case Storage::kMemory:
      return "Memory";
    case Storage::kUring:
      return "Uring";
    case Storage::kThreads:
      return "Threads";
  }
  return "Unknown";
}

TestTiers::TestTiers(Storage storage, std::uint64_t host_bytes) : storage_(storage) {
  offload::TiersOptions options;
  options.host_bytes = host_bytes;
  options.log = [lines = lines_](const std::string& line) { lines->push_back(line); };
  if (storage != Storage::kMemory) {
    folder_.emplace("bank");
    options.nvme_path = folder_->path().string();
    options.engine = storage == Storage::kUring ? offload::EngineChoice::kIoUring : offload::EngineChoice::kThreads;
  }
  tiers_ = std::make_shared<offload::Tiers>(std::move(options));
  lines_->clear();
}

queue::BankOptions bank_options(const BankShape& shape, Storage storage, std::int64_t resident_segments) {
  queue::BankOptions options;
  options.capacity = shape.capacity;
  options.dim = shape.dim;
  options.dtype = shape.dtype;
  options.segment_rows = shape.segment_rows;
  options.labels = shape.labels;
  options.capacity_max = shape.capacity_max;
  options.ring_slots = 2;
  options.host_bytes = offload::kUnlimitedBytes;
  if (storage == Storage::kMemory) return options;
  const queue::BankPlacement all = queue::place_bank(options);
  options.disk_allowed = true;
  options.host_bytes = all.fixed_bytes() + queue::page_sum_bytes(all.resident_bytes) +
                       (options.ring_slots + static_cast<std::uint64_t>(resident_segments)) * all.segment_bytes;
  return options;
}

at::Tensor contents(queue::NegativeBank& bank, at::ScalarType dtype) {
  std::vector<at::Tensor> tiles{at::empty({0, bank.dim()}, at::TensorOptions(dtype))};
  bank.scan(dtype, [&](const queue::BankTile& tile) { tiles.push_back(tile.rows.clone()); });
  return at::cat(tiles);
}

at::Tensor ids(std::int64_t first, std::int64_t count) { return numbers(first, count).to(at::kFloat).unsqueeze(1); }

at::Tensor numbers(std::int64_t first, std::int64_t count) {
  return at::arange(first, first + count, at::TensorOptions(at::kLong));
}

at::Tensor random_rows(std::int64_t rows, std::int64_t dim, std::uint64_t seed, at::ScalarType dtype) {
  return at::randn({rows, dim}, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kDouble)).to(dtype);
}

}  // namespace spillway::test

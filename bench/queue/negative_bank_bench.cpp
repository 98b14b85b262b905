// The streaming loss over banks in memory and on disk, beside the matrix products that it can't do without.
//
// NegativeBank/<where>/N/K: one loss and backward of N queries over K rows of 128 float16 elements, announced ahead as
// the trainer does. The counter bank_bytes/s is what the pass reads of the bank; compare it with Products, the ceiling.
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <benchmark/benchmark.h>

#include <spillway/queue/negative_bank.hpp>
#include <spillway/queue/streaming_loss.hpp>

namespace spillway::queue::negative_bank_bench {
namespace {

using spillway::NegativeBank;
using spillway::offload::Tier;

constexpr std::int64_t kDim = 128;
constexpr double kTemperature = 0.07;

enum class Where : std::uint8_t { kMemory, kDisk };

at::Tensor unit_rows(std::int64_t rows, std::uint64_t seed) {
  const at::Tensor raw = at::randn({rows, kDim}, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kFloat));
  return raw.div(raw.norm(2, {1}, /*keepdim=*/true));
}

/// A full bank; on disk all but two of its segments are streamed. The folder is $TMPDIR or the system's.
std::unique_ptr<NegativeBank> full_bank(Where where, std::int64_t rows) {
  spillway::offload::TiersOptions tiers;
  spillway::BankOptions options;
  options.capacity = rows;
  options.dim = kDim;
  options.segment_rows = 4'096;
  options.host_bytes = spillway::offload::kUnlimitedBytes;
  if (where == Where::kDisk) {
    tiers.nvme_path = std::filesystem::temp_directory_path().string();
    const auto all = spillway::queue::place_bank(options);
    options.disk_allowed = true;
    options.host_bytes =
        all.fixed_bytes() + page_sum_bytes(all.resident_bytes) + (options.ring_slots + 2) * all.segment_bytes;
  }
  auto bank = std::make_unique<NegativeBank>(std::make_shared<spillway::offload::Tiers>(std::move(tiers)), options);
  for (std::uint64_t seed = 0; bank->size() < rows; ++seed) bank->enqueue(unit_rows(4'096, seed));
  bank->flush();
  return bank;
}

/// The answer is checked before it is timed.
void expect_right(NegativeBank& bank, const at::Tensor& q, const at::Tensor& k) {
  const at::Tensor got = spillway::info_nce(q.narrow(0, 0, 1), k.narrow(0, 0, 1), bank, kTemperature).loss;
  at::Tensor logits = at::empty({bank.size() + 1}, at::TensorOptions(at::kDouble));
  const at::Tensor positive = q[0].mul(k[0]).sum().div(kTemperature);
  logits[bank.size()].copy_(positive);
  bank.scan(at::kFloat, [&](const BankTile& tile) {
    logits.narrow(0, tile.first, tile.rows.size(0)).copy_(tile.rows.matmul(q[0]).div(kTemperature));
  });
  const double wanted = at::logsumexp(logits, {0}).sub(positive).item<double>();
  if (std::abs(got.item<double>() - wanted) > 1e-4) throw std::runtime_error("the streaming loss is wrong");
}

void set_counters(benchmark::State& state, std::int64_t n, std::int64_t rows) {
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["flop/s"] = benchmark::Counter(4.0 * static_cast<double>(n * rows * kDim) * iterations,
                                                benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
  state.counters["bank_bytes/s"] = benchmark::Counter(2.0 * static_cast<double>(rows * kDim) * iterations,
                                                      benchmark::Counter::kIsRate, benchmark::Counter::kIs1024);
}

void loss_and_backward(benchmark::State& state, Where where) {
  const std::int64_t n = state.range(0);
  const std::int64_t rows = state.range(1);
  const auto bank = full_bank(where, rows);
  const at::Tensor k = unit_rows(n, 1'000'001);
  const at::Tensor q = unit_rows(n, 1'000'002);
  expect_right(*bank, q, k);
  for (auto iteration : state) {
    const at::Tensor leaf = q.detach().requires_grad_();
    bank->prefetch();
    spillway::info_nce(leaf, k, *bank, kTemperature).loss.backward();
    benchmark::DoNotOptimize(leaf.grad().data_ptr());
  }
  set_counters(state, n, rows);
}

void in_memory(benchmark::State& state) { loss_and_backward(state, Where::kMemory); }
void on_disk(benchmark::State& state) { loss_and_backward(state, Where::kDisk); }

/// The two products per tile alone, on a tile that never changes.
void products(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const std::int64_t rows = state.range(1);
  const at::Tensor q = unit_rows(n, 1);
  const at::Tensor tile = unit_rows(spillway::queue::kTileRows, 2);
  at::Tensor logits = at::empty({n, tile.size(0)}, at::TensorOptions(at::kFloat));
  at::Tensor weighted = at::zeros({n, kDim}, at::TensorOptions(at::kFloat));
  for (auto iteration : state) {
    for (std::int64_t row = 0; row < rows; row += tile.size(0)) {
      at::addmm_out(logits, logits, q, tile.t(), /*beta=*/0, /*alpha=*/1e-3);
      at::addmm_out(weighted, weighted, logits, tile, /*beta=*/0);
    }
    benchmark::DoNotOptimize(weighted.data_ptr());
  }
  set_counters(state, n, rows);
}

void enqueue(benchmark::State& state) {
  const auto bank = full_bank(Where::kDisk, 65'536);
  const at::Tensor keys = unit_rows(state.range(0), 7);
  for (auto iteration : state) bank->enqueue(keys);
  bank->flush();
  state.counters["rows/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)), benchmark::Counter::kIsRate);
}

BENCHMARK(in_memory)
    ->Name("NegativeBank/memory")
    ->Args({64, 65'536})
    ->Args({256, 65'536})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(on_disk)
    ->Name("NegativeBank/disk")
    ->Args({64, 65'536})
    ->Args({256, 65'536})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(products)
    ->Name("Products")
    ->Args({64, 65'536})
    ->Args({256, 65'536})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(enqueue)->Name("Enqueue")->Arg(64)->Arg(256)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace spillway::queue::negative_bank_bench

#include <spillway/app/bench/loss_rows.hpp>

#include <array>
#include <functional>
#include <utility>

#include <spillway/app/bench/cost_clock.hpp>
#include <spillway/app/bench/loss_sides.hpp>
#include <spillway/app/bench/tensor_memory.hpp>
#include <spillway/app/bench/turns.hpp>
#include <spillway/app/probe/machine_probe.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::app {
namespace {

constexpr std::int64_t kQueries = 256;
constexpr double kMebibyte = 1024.0 * 1024.0;
constexpr double kMemoryBar = 10.0;  // The usual way takes so many times as much.
constexpr unsigned kTablesOfLogits = 6;
constexpr double kFloatTolerance = 1e-4;  // Relative, of sums of 65,536 terms in float32 in two orders.
constexpr double kHalfTolerance = 5e-3;   // Rows were rounded to float16, at 1/2,048 each.

std::vector<BenchRowHead> loss_row_heads(const LossCase& about) {
  const BenchReference bound{.name = "the two bare matrix products"};
  const BenchReference peer{.name = "matmul, cat, cross_entropy, backward in LibTorch"};
  std::vector<BenchRowHead> all;
  const auto add = [&](const std::string& name, double ratio, BenchBar::To to) {
    BenchRowHead head{.name = name, .unit = "ms", .bound = bound, .peer = peer, .smaller_is_better = true};
    if (ratio > 0.0) {
      head.bar = BenchBar{ratio, to};
    }
    all.push_back(std::move(head));
  };
  if (about.bound_bar > 0.0) {
    add(about.name, about.bound_bar, BenchBar::To::kBound);
  }
  if (about.peer_bar > 0.0 || about.bound_bar == 0.0) {
    add(about.name + (about.bound_bar > 0.0 ? "_peer" : ""), about.peer_bar, BenchBar::To::kPeer);
  }
  if (about.has_memory) {
    all.push_back({.name = about.name + "_memory",
                   .unit = "MiB",
                   .peer = peer,
                   .bar = BenchBar{kMemoryBar, BenchBar::To::kPeer},
                   .smaller_is_better = true});
  }
  return all;
}

double milliseconds_of(const std::function<void()>& body) {
  const CostClock clock;
  body();
  return clock.elapsed().seconds * 1e3;
}

/// Both banks, the tables of the usual way, and as much again for what else runs.
std::uint64_t needed_bytes(const LossCase& about) {
  const auto keys = static_cast<std::uint64_t>(about.keys);
  return keys * (2 * static_cast<std::uint64_t>(about.dim) + kTablesOfLogits * kQueries) * sizeof(float);
}

BenchRound memory_round(const at::Tensor& q, const at::Tensor& k, const at::Tensor& keys, queue::NegativeBank& bank) {
  BenchRound round;
  const std::uint64_t ours =
      peak_tensor_bytes([&] { streamed_loss(q, k, bank); }) + bank.placement().tile_bytes;  // Made with the bank.
  round.value = static_cast<double>(ours) / kMebibyte;
  round.peer = static_cast<double>(peak_tensor_bytes([&] { table_loss(q, k, keys); })) / kMebibyte;
  return round;
}

}  // namespace

std::vector<std::string> loss_row_names(const LossCase& about) {
  std::vector<std::string> names;
  for (const BenchRowHead& head : loss_row_heads(about)) {
    names.push_back(head.name);
  }
  return names;
}

std::vector<BenchRow> loss_rows(const LossCase& about, unsigned count) {
  std::vector<BenchRow> rows;
  if (const std::uint64_t there = available_memory_bytes(); there < needed_bytes(about)) {
    for (BenchRowHead& head : loss_row_heads(about)) {
      rows.push_back(absent_bench_row(std::move(head), "it takes " + offload::format_bytes(needed_bytes(about)) +
                                                           " of memory, and there are " +
                                                           offload::format_bytes(there)));
    }
    return rows;
  }
  const at::Tensor keys = bench_unit_rows(about.keys, about.dim, 1);
  const at::Tensor k = bench_unit_rows(kQueries, about.dim, 2);
  const at::Tensor q = bench_unit_rows(kQueries, about.dim, 3);
  const auto bank = resident_bank(keys, about.dtype);
  compare_losses(about.name, streamed_loss(q, k, *bank), table_loss(q, k, keys),
                 about.dtype == at::kFloat ? kFloatTolerance : kHalfTolerance);
  BareProducts products(q, keys);
  products.run();
  std::vector<BenchRound> rounds(count);
  by_turns(count,
           {[&](std::size_t round) { rounds[round].value = milliseconds_of([&] { streamed_loss(q, k, *bank); }); },
            [&](std::size_t round) { rounds[round].bound = milliseconds_of([&] { products.run(); }); },
            [&](std::size_t round) { rounds[round].peer = milliseconds_of([&] { table_loss(q, k, keys); }); }});
  for (BenchRowHead& head : loss_row_heads(about)) {
    const bool of_memory = head.unit == "MiB";  // Exact, so that one round tells all.
    rows.push_back(make_bench_row(std::move(head), of_memory ? std::vector{memory_round(q, k, keys, *bank)} : rounds));
  }
  return rows;
}

}  // namespace spillway::app

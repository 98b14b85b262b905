#include <spillway/app/bench/bench_optimizer.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include <ATen/ops/allclose.h>

#include <spillway/app/bench/adam_sides.hpp>
#include <spillway/app/bench/bench_report.hpp>
#include <spillway/app/bench/log_sinks.hpp>
#include <spillway/app/bench/turns.hpp>
#include <spillway/app/report/summary.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/optimizer/kernel_types.hpp>

namespace spillway::app {
namespace {

using optimizer::MasterFormat;
using optimizer::StateFormat;

constexpr std::uint64_t kNumelUnit = std::uint64_t{1} << 17;  // An eighth of it makes 16,384 tensors.
constexpr const char* kPeerName = "torch fused AdamW";
constexpr const char* kBoundName = "the same streams of memory";

struct NamedBar {
  const char* row;
  std::optional<BenchBar> bar;
};

/// Rows that come from one measurement.
struct CaseRows {
  AdamCase about;
  std::vector<NamedBar> rows;
};

std::vector<CaseRows> all_cases(std::uint64_t numel) {
  const std::uint64_t less = numel / 8;
  const auto of_bound = [](double ratio) { return BenchBar{ratio, BenchBar::To::kBound}; };
  const auto of_peer = [](double ratio) { return BenchBar{ratio, BenchBar::To::kPeer}; };
  AdamCase flat{.numel = numel};
  AdamCase middle{.numel = less, .tensors = 1024};
  AdamCase small{.numel = less, .tensors = 16'384};
  AdamCase mixed{.numel = less, .type = at::kBFloat16};
  AdamCase narrow{.numel = less, .type = at::kBFloat16, .state = StateFormat::kBFloat16};
  AdamCase whole{.numel = numel, .type = at::kBFloat16, .masters = MasterFormat::kFloat32, .clips = true};
  return {{flat, {{"fp32_flat", of_bound(0.95)}, {"fp32_flat_peer", of_peer(0.97)}}},
          {middle, {{"fp32_1024_tensors", of_peer(1.6)}}},
          {small, {{"fp32_16384_tensors", of_peer(8.0)}}},
          {mixed, {{"bf16_fp32_state", of_peer(1.1)}}},
          {narrow, {{"all_bf16", of_peer(1.3)}}},
          {whole, {{"whole_step", of_peer(1.5)}}}};
}

void check(const BenchOptimizerOptions& options) {
  if (options.numel < kNumelUnit || options.numel % kNumelUnit != 0) {
    throw ConfigError("spillway bench optimizer --numel: wanted a multiple of " + std::to_string(kNumelUnit) +
                      ", not " + std::to_string(options.numel));
  }
  if (options.rounds == 0) {
    throw ConfigError("spillway bench optimizer: at least one round is needed");
  }
  std::vector<std::string> known;
  for (const CaseRows& measured : all_cases(options.numel)) {
    for (const NamedBar& row : measured.rows) {
      known.emplace_back(row.row);
    }
  }
  check_row_names("optimizer", known, options.rows);
  check_report_file(options.json);
}

// Threads of the side before, which spin for a while after their work, have gone to sleep meanwhile.
double rate_after_a_pause(std::uint64_t numel, const std::function<void()>& step) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto start = std::chrono::steady_clock::now();
  step();
  return static_cast<double>(numel) / 1e6 /
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// What is timed has to be right: both sides, from equal weights and gradients, to the precision of the weights.
void compare(const WrappedAdamSide& ours, const TorchAdamSide& peer) {
  const double tolerance = ours.weights().front().scalar_type() == at::kFloat ? 1e-5 : 2e-2;
  for (std::size_t t = 0; t < ours.weights().size(); ++t) {
    if (!at::allclose(ours.weights()[t].detach(), peer.weights()[t], tolerance, tolerance * 1e-2)) {
      throw Error("the sides of the bench compute different weights in tensor " + std::to_string(t));
    }
  }
}

std::vector<BenchRound> measure(const AdamCase& about, unsigned count) {
  WrappedAdamSide ours(about);
  MemoryStreams bound = bench_streams(about);
  std::optional<TorchAdamSide> peer;
  if (TorchAdamSide::unavailable(about).empty()) {
    peer.emplace(about);
  }
  for (int warm_up = 0; warm_up < 2; ++warm_up) {
    ours.step();
    bound.pass();
    if (peer) {
      peer->step();
    }
  }
  if (peer) {
    compare(ours, *peer);
  }
  std::vector<BenchRound> rounds(count);
  std::vector<std::function<void(std::size_t)>> sides{
      [&](std::size_t round) { rounds[round].value = rate_after_a_pause(about.numel, [&] { ours.step(); }); },
      [&](std::size_t round) { rounds[round].bound = rate_after_a_pause(about.numel, [&] { bound.pass(); }); }};
  if (peer) {
    sides.emplace_back(
        [&](std::size_t round) { rounds[round].peer = rate_after_a_pause(about.numel, [&] { peer->step(); }); });
  }
  by_turns(count, sides);
  return rounds;
}

Json machine_of(const BenchOptimizerOptions& options) {
  Json machine = describe_machine();
  auto& members = *machine.get_if<Json::Object>();
  members.emplace_back("numel", options.numel);
  members.emplace_back("rounds", std::uint64_t{options.rounds});
  members.emplace_back("instruction_set", optimizer::kernel_instruction_set());
  members.emplace_back("deepspeed_cpu_adam", "not measured in this version: peers are LibTorch's alone");
  return machine;
}

}  // namespace

int run_bench_optimizer(const BenchOptimizerOptions& options) {
  check(options);
  const auto wanted = [&](const NamedBar& row) {
    return options.rows.empty() || std::find(options.rows.begin(), options.rows.end(), row.row) != options.rows.end();
  };
  std::vector<BenchRow> rows;
  for (const CaseRows& measured : all_cases(options.numel)) {
    if (std::none_of(measured.rows.begin(), measured.rows.end(), wanted)) {
      continue;
    }
    const std::vector<BenchRound> rounds = measure(measured.about, options.rounds);
    for (const NamedBar& row : measured.rows) {
      if (wanted(row)) {
        say_on_stderr(std::string(row.row) + " is measured");
        rows.push_back(
            make_bench_row({.name = row.row,
                            .unit = "Melem/s",
                            .bound = {.name = kBoundName},
                            .peer = {.name = kPeerName, .why_absent = TorchAdamSide::unavailable(measured.about)},
                            .bar = row.bar},
                           rounds));
      }
    }
    if (!options.json.empty()) {
      write_json_file(options.json, bench_json("optimizer", machine_of(options), rows));
    }
  }
  std::printf("AdamW through wrap() with fused kernels (%s), %u rounds.\n%s",
              optimizer::kernel_instruction_set().c_str(), options.rounds, bench_table(rows).c_str());
  return 0;
}

}  // namespace spillway::app

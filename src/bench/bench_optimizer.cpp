#include <spillway/app/bench/bench_optimizer.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include <ATen/ops/abs.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/sum.h>

#include <spillway/app/bench/adam_sides.hpp>
#include <spillway/app/bench/bench_report.hpp>
#include <spillway/app/bench/cpu_adam_peer.hpp>
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
void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

double rate_after_a_pause(std::uint64_t numel, const std::function<void()>& step) {
  pause();
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

/// DeepSpeed's CPUAdam, if that can be had.
class Peers {
 public:
  explicit Peers(const std::string& folder) : why_no_deepspeed_(CpuAdamPeer::unavailable(folder)) {
    if (!why_no_deepspeed_.empty()) return;
    try {
      deepspeed_.emplace(folder);
    } catch (const Error& error) {
      why_no_deepspeed_ = error.what();
    }
  }
  [[nodiscard]] CpuAdamPeer* deepspeed() { return deepspeed_ ? &*deepspeed_ : nullptr; }
  [[nodiscard]] const std::string& why_no_deepspeed() const noexcept { return why_no_deepspeed_; }

 private:
  std::optional<CpuAdamPeer> deepspeed_;
  std::string why_no_deepspeed_;
};

/// Rounds beside the quicker of the peers.
struct Measured {
  std::vector<BenchRound> rounds;
  BenchReference peer;
};

// What is timed has to be right here too.
void compare(const WrappedAdamSide& ours, CpuAdamPeer& peer) {
  double sum = 0.0;
  double numel = 0.0;
  for (const at::Tensor& weight : ours.weights()) {
    sum += weight.detach().abs().sum(at::kDouble).item<double>();
    numel += static_cast<double>(weight.numel());
  }
  const double theirs = peer.mean_abs();
  if (std::abs(sum / numel - theirs) > 1e-4 * theirs) {
    throw Error("DeepSpeed's CPUAdam computes other weights: " + std::to_string(theirs) + " on average, wanted " +
                std::to_string(sum / numel));
  }
}

// Medians decide; where nothing was measured, why.
Measured beside_quicker(std::vector<BenchRound> rounds, const std::vector<double>& torch,
                        const std::vector<double>& deepspeed, const AdamCase& about, Peers& peers) {
  if (torch.empty() && deepspeed.empty()) {
    return {std::move(rounds),
            {.name = kPeerName,
             .why_absent = TorchAdamSide::unavailable(about) + "; DeepSpeed: " + peers.why_no_deepspeed()}};
  }
  const bool by_torch = deepspeed.empty() || (!torch.empty() && quantile(torch, 0.5) > quantile(deepspeed, 0.5));
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    rounds[round].peer = by_torch ? torch[round] : deepspeed[round];
  }
  const auto text = [](const std::vector<double>& rates) {
    return rates.empty() ? std::string("not measured")
                         : std::to_string(std::llround(quantile(rates, 0.5))) + " Melem/s";
  };
  say_on_stderr(std::string(kPeerName) + ": " + text(torch) + "; DeepSpeed's CPUAdam: " + text(deepspeed));
  return {std::move(rounds), {.name = by_torch ? kPeerName : peers.deepspeed()->name()}};
}

Measured measure(const AdamCase& about, unsigned count, Peers& peers) {
  WrappedAdamSide ours(about);
  MemoryStreams bound = bench_streams(about);
  std::optional<TorchAdamSide> torch;
  if (TorchAdamSide::unavailable(about).empty()) {
    torch.emplace(about);
  }
  CpuAdamPeer* const deepspeed = peers.deepspeed();
  if (deepspeed != nullptr) deepspeed->start(about);
  for (int warm_up = 0; warm_up < 2; ++warm_up) {
    ours.step();
    bound.pass();
    if (torch) torch->step();
    if (deepspeed != nullptr) static_cast<void>(deepspeed->rate());
  }
  if (torch) compare(ours, *torch);
  if (deepspeed != nullptr) compare(ours, *deepspeed);
  std::vector<BenchRound> rounds(count);
  std::vector<double> torch_rates(torch ? count : 0);
  std::vector<double> deepspeed_rates(deepspeed != nullptr ? count : 0);
  std::vector<std::function<void(std::size_t)>> sides{
      [&](std::size_t round) { rounds[round].value = rate_after_a_pause(about.numel, [&] { ours.step(); }); },
      [&](std::size_t round) { rounds[round].bound = rate_after_a_pause(about.numel, [&] { bound.pass(); }); }};
  if (torch) {
    sides.emplace_back(
        [&](std::size_t round) { torch_rates[round] = rate_after_a_pause(about.numel, [&] { torch->step(); }); });
  }
  if (deepspeed != nullptr) {
    sides.emplace_back([&](std::size_t round) {
      pause();
      deepspeed_rates[round] = deepspeed->rate();
    });
  }
  by_turns(count, sides);
  return beside_quicker(std::move(rounds), torch_rates, deepspeed_rates, about, peers);
}

Json machine_of(const BenchOptimizerOptions& options) {
  Json machine = describe_machine();
  auto& members = *machine.get_if<Json::Object>();
  members.emplace_back("numel", options.numel);
  members.emplace_back("rounds", std::uint64_t{options.rounds});
  members.emplace_back("instruction_set", optimizer::kernel_instruction_set());
  return machine;
}

}  // namespace

int run_bench_optimizer(const BenchOptimizerOptions& options) {
  check(options);
  const auto wanted = [&](const NamedBar& row) {
    return options.rows.empty() || std::find(options.rows.begin(), options.rows.end(), row.row) != options.rows.end();
  };
  Peers peers(options.peers_folder);
  std::vector<BenchRow> rows;
  for (const CaseRows& measured : all_cases(options.numel)) {
    if (std::none_of(measured.rows.begin(), measured.rows.end(), wanted)) {
      continue;
    }
    const Measured beside = measure(measured.about, options.rounds, peers);
    for (const NamedBar& row : measured.rows) {
      if (wanted(row)) {
        say_on_stderr(std::string(row.row) + " is measured");
        rows.push_back(make_bench_row(
            {.name = row.row, .unit = "Melem/s", .bound = {.name = kBoundName}, .peer = beside.peer, .bar = row.bar},
            beside.rounds));
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

#include <spillway/app/bench/bench_step.hpp>

#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/Parallel.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <spillway/app/bench/adam_sides.hpp>
#include <spillway/app/bench/bare_loop.hpp>
#include <spillway/app/bench/bench_report.hpp>
#include <spillway/app/bench/cost_clock.hpp>
#include <spillway/app/bench/deepspeed_peer.hpp>
#include <spillway/app/bench/log_sinks.hpp>
#include <spillway/app/bench/turns.hpp>
#include <spillway/app/bench/uring_loop.hpp>
#include <spillway/app/probe/file_system_name.hpp>
#include <spillway/app/report/summary.hpp>
#include <spillway/app/training/peak_memory.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

using optimizer::MasterFormat;
using optimizer::StateFormat;

constexpr std::uint64_t kStepTensors = 50;
constexpr std::uint64_t kStepNumelUnit = kStepTensors * 4096;
constexpr std::uint64_t kStepBudgetShare = 10;  // The plain state is so many times the host budget.
constexpr std::uint64_t kPlainStateBytes = 8;
constexpr double kStepBar = 1.0 / 1.05;
constexpr std::uint64_t kLoopBytes = std::uint64_t{1} << 30;  // Of the file of the bare loop.

struct StepCase {
  std::string row;
  AdamCase about;
  double peer_bar;

  [[nodiscard]] std::string peer_row() const { return row + "_peer"; }
};

std::vector<StepCase> step_cases(std::uint64_t numel) {
  const AdamCase wide{.numel = numel, .tensors = kStepTensors};
  AdamCase remainder = wide;
  remainder.type = at::kBFloat16;
  remainder.masters = MasterFormat::kRemainder;
  AdamCase codes = remainder;
  codes.state = StateFormat::kBlockwise8;
  return {{"step_fp32", wide, 1.7}, {"step_remainder", remainder, 2.0}, {"step_8bit", codes, 4.0}};
}

constexpr char kMemoryRow[] = "step_memory";
constexpr char kMemoryPeerRow[] = "step_memory_peer";
constexpr std::uint64_t kMemoryAllowance = std::uint64_t{64} << 20;

std::uint64_t host_budget(std::uint64_t numel) { return numel * kPlainStateBytes / kStepBudgetShare; }

void check(const BenchStepOptions& options) {
  if (options.numel < kStepNumelUnit || options.numel % kStepNumelUnit != 0) {
    throw ConfigError("spillway bench step --numel: wanted a multiple of " + std::to_string(kStepNumelUnit) + ", not " +
                      std::to_string(options.numel));
  }
  if (options.rounds == 0) throw ConfigError("spillway bench step: at least one round is needed");
  std::vector<std::string> known;
  for (const StepCase& measured : step_cases(options.numel)) {
    known.push_back(measured.row);
    known.push_back(measured.peer_row());
  }
  known.insert(known.end(), {kMemoryRow, kMemoryPeerRow});
  check_row_names("step", known, options.rows);
  check_report_file(options.json);
}

/// A wrapped AdamW and the weights that it updates, whose gradients are there.
class StepSide {
 public:
  /// @param folder  On the disk that the state is on; empty: it stays in host memory.
  StepSide(const AdamCase& about, const std::string& folder) : weights_(bench_weights(about)) {
    optimizer::OptimizerConfig config;
    config.kernels = optimizer::UpdateKernels::kFused;
    config.state_format = about.state;
    config.masters = about.masters;
    config.tiers_options.log = say_nothing;
    config.state = folder.empty() ? optimizer::StateDevice::kCpu : optimizer::StateDevice::kNvme;
    if (!folder.empty()) {
      config.nvme_path = folder;
      config.host_bytes = host_budget(about.numel);
    }
    auto plain = std::make_unique<torch::optim::AdamW>(weights_, torch::optim::AdamWOptions(1e-3).weight_decay(1e-2));
    optimizer_ = optimizer::wrap(std::move(plain), config);
  }

  /// From the first read to the last write that has ended.
  double seconds_of_step() {
    const CostClock clock;
    optimizer_->step();
    optimizer_->flush();
    return clock.elapsed().seconds;
  }
  [[nodiscard]] std::uint64_t bytes_of_step() const {
    const optimizer::StepBytes bytes = optimizer_->steady_step_bytes();
    return bytes.read + bytes.written;
  }
  [[nodiscard]] const std::vector<at::Tensor>& weights() const noexcept { return weights_; }

 private:
  std::vector<at::Tensor> weights_;
  std::unique_ptr<optimizer::Optimizer> optimizer_;
};

/// @throws Error where placement changes a bit.
void compare(const StepSide& on_disk, const StepSide& in_memory) {
  for (std::size_t i = 0; i < on_disk.weights().size(); ++i) {
    if (!on_disk.weights()[i].equal(in_memory.weights()[i])) {
      throw Error("the weights of tensor " + std::to_string(i) + " depend on where the state lives");
    }
  }
}

/// What the steps are held against, made when the first of them is measured.
class References {
 public:
  explicit References(const BenchStepOptions& options)
      : why_no_loop_(uring_loop_unavailable()), why_no_peer_(ZeroStepPeer::unavailable(options.peers_folder)) {
    if (why_no_loop_.empty()) loop_.emplace(options.nvme_path, kLoopBytes, IoDirection::kMix);
    if (!why_no_peer_.empty()) return;
    try {
      peer_.emplace(options.peers_folder, options.nvme_path, options.numel, kStepTensors);
      for (int warm_up = 0; warm_up < 2; ++warm_up) static_cast<void>(peer_->rate());
    } catch (const Error& error) {
      peer_.reset();
      why_no_peer_ = error.what();
    }
  }

  [[nodiscard]] BareLoop* loop() { return loop_ ? &*loop_ : nullptr; }
  [[nodiscard]] ZeroStepPeer* peer() { return peer_ ? &*peer_ : nullptr; }
  [[nodiscard]] BenchReference loop_reference() const {
    return {.name = "its bytes by a bare io_uring loop, or its update in memory", .why_absent = why_no_loop_};
  }
  [[nodiscard]] BenchReference peer_reference() const {
    return {.name = peer_ ? peer_->name() : "DeepSpeed ZeRO-3", .why_absent = why_no_peer_};
  }

 private:
  std::optional<BareLoop> loop_;
  std::optional<ZeroStepPeer> peer_;
  std::string why_no_loop_;
  std::string why_no_peer_;
};

std::vector<BenchRow> measure_step(const StepCase& measured, const BenchStepOptions& options, References& references) {
  StepSide ours(measured.about, options.nvme_path);
  StepSide in_memory(measured.about, "");
  for (int warm_up = 0; warm_up < 2; ++warm_up) {
    static_cast<void>(ours.seconds_of_step());
    static_cast<void>(in_memory.seconds_of_step());
  }
  compare(ours, in_memory);
  const auto bytes = static_cast<double>(ours.bytes_of_step());
  const auto elements = static_cast<double>(measured.about.numel) / 1e6;
  std::vector<BenchRound> rounds(options.rounds);
  std::vector<double> updates(options.rounds);
  std::vector<double> transfers(options.rounds);
  std::vector<std::function<void(std::size_t)>> sides{
      [&](std::size_t round) { rounds[round].value = elements / ours.seconds_of_step(); },
      [&](std::size_t round) { updates[round] = in_memory.seconds_of_step(); }};
  if (BareLoop* const loop = references.loop()) {
    sides.emplace_back([&, loop](std::size_t round) { transfers[round] = bytes / loop->rate(); });
  }
  if (ZeroStepPeer* const peer = references.peer()) {
    sides.emplace_back([&, peer](std::size_t round) { rounds[round].peer = peer->rate(); });
  }
  by_turns(options.rounds, sides);
  for (std::size_t round = 0; references.loop() != nullptr && round < rounds.size(); ++round) {
    rounds[round].bound = elements / std::max(updates[round], transfers[round]);
  }
  say_on_stderr(measured.row + " is measured: " + std::to_string(bytes / elements / 1e6) + " bytes an element");
  BenchRowHead of_bound{.name = measured.row,
                        .unit = "Melem/s",
                        .bound = references.loop_reference(),
                        .bar = BenchBar{.ratio = kStepBar}};
  BenchRowHead of_peer{.name = measured.peer_row(),
                       .unit = "Melem/s",
                       .peer = references.peer_reference(),
                       .bar = BenchBar{.ratio = measured.peer_bar, .to = BenchBar::To::kPeer}};
  std::vector<BenchRound> without_peer = rounds;
  for (BenchRound& round : without_peer) round.peer.reset();
  for (BenchRound& round : rounds) round.bound.reset();
  return {make_bench_row(std::move(of_bound), without_peer), make_bench_row(std::move(of_peer), rounds)};
}

/// Most that this process has resident while `run` lasts, in MiB; nothing where the kernel does not tell.
std::optional<double> peak_mib(const std::function<void()>& run) {
  ::malloc_trim(0);  // Memory of the run before is of no interest.
  if (!reset_peak_resident_bytes()) return std::nullopt;
  run();
  return static_cast<double>(peak_resident_bytes()) / (1 << 20);
}

// Steps of the optimizer that needs no state, on the same weights.
void run_sgd(const AdamCase& about) {
  const std::vector<at::Tensor> weights = bench_weights(about);
  torch::optim::SGD optimizer(weights, torch::optim::SGDOptions(1e-3));
  for (int step = 0; step < 3; ++step) optimizer.step();
}

std::vector<BenchRow> measure_memory(const BenchStepOptions& options, References& references) {
  const AdamCase about = step_cases(options.numel).front().about;
  const auto ours = peak_mib([&] {
    StepSide side(about, options.nvme_path);
    for (int step = 0; step < 3; ++step) static_cast<void>(side.seconds_of_step());
  });
  const auto plain = peak_mib([&] { run_sgd(about); });
  BenchRowHead of_bound{.name = kMemoryRow,
                        .unit = "MiB",
                        .bound = {.name = "SGD without momentum, the host budget and 64 MiB"},
                        .bar = BenchBar{.ratio = 1.0},
                        .smaller_is_better = true};
  BenchRowHead of_peer{.name = kMemoryPeerRow,
                       .unit = "MiB",
                       .peer = references.peer_reference(),
                       .bar = BenchBar{.ratio = 1.0, .to = BenchBar::To::kPeer},
                       .smaller_is_better = true};
  if (!ours || !plain) {
    constexpr char kWhy[] = "this kernel does not count peaks anew (/proc/self/clear_refs)";
    return {absent_bench_row(std::move(of_bound), kWhy), absent_bench_row(std::move(of_peer), kWhy)};
  }
  const double allowed = static_cast<double>(host_budget(options.numel) + kMemoryAllowance) / (1 << 20);
  BenchRound beside_peer{.value = *ours, .bound = {}, .peer = {}};
  if (references.peer() != nullptr) beside_peer.peer = references.peer()->peak_bytes() / (1 << 20);
  return {make_bench_row(std::move(of_bound), {{.value = *ours, .bound = *plain + allowed, .peer = {}}}),
          make_bench_row(std::move(of_peer), {beside_peer})};
}

Json machine_of(const BenchStepOptions& options) {
  Json machine = describe_machine();
  auto& members = *machine.get_if<Json::Object>();
  members.emplace_back("file_system", file_system_name(options.nvme_path));
  members.emplace_back("threads", static_cast<std::uint64_t>(at::get_num_threads()));
  members.emplace_back("numel", options.numel);
  members.emplace_back("host_budget_bytes", host_budget(options.numel));
  members.emplace_back("rounds", std::uint64_t{options.rounds});
  return machine;
}

}  // namespace

int run_bench_step(const BenchStepOptions& options) {
  check(options);
  const auto wanted = [&](const std::string& row) {
    return options.rows.empty() || std::ranges::find(options.rows, row) != options.rows.end();
  };
  References references(options);
  std::vector<BenchRow> rows;
  if (wanted(kMemoryRow) || wanted(kMemoryPeerRow)) {
    for (BenchRow& row : measure_memory(options, references)) {
      if (wanted(row.head.name)) rows.push_back(std::move(row));
    }
  }
  for (const StepCase& measured : step_cases(options.numel)) {
    if (!wanted(measured.row) && !wanted(measured.peer_row())) continue;
    for (BenchRow& row : measure_step(measured, options, references)) {
      if (wanted(row.head.name)) rows.push_back(std::move(row));
    }
    if (!options.json.empty()) write_json_file(options.json, bench_json("step", machine_of(options), rows));
  }
  std::printf("AdamW steps with the state under %s, %u rounds.\n%s", options.nvme_path.c_str(), options.rounds,
              bench_table(rows).c_str());
  return 0;
}

}  // namespace spillway::app

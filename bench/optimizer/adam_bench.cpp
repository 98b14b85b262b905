// One step of AdamW over 16 Mi float32 parameters: plain LibTorch, and wrapped with its state in each place. Elements
// per second count parameters; state_bytes_per_second is what a step streams, to be held against the disk's own rate.
#include <cstring>
#include <filesystem>
#include <set>
#include <stdexcept>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <benchmark/benchmark.h>
#include <torch/optim/adamw.h>

#include <spillway/optimizer/sharded_optimizer.hpp>

namespace spillway::optimizer::adam_bench {
namespace {

constexpr std::int64_t kTensors = 16;
constexpr std::int64_t kNumel = 1 << 20;

using Weights = std::vector<at::Tensor>;

Weights make_weights() {
  Weights weights;
  for (std::int64_t i = 0; i < kTensors; ++i) {
    weights.push_back(at::full({kNumel}, 1.0F + 0.1F * static_cast<float>(i)).requires_grad_());
    weights.back().mutable_grad() = at::full({kNumel}, 0.01F);
  }
  return weights;
}

std::unique_ptr<torch::optim::Optimizer> plain_adamw(const Weights& weights) {
  return std::make_unique<torch::optim::AdamW>(weights, torch::optim::AdamWOptions(1e-3));
}

enum Place : std::int64_t { kUntouched, kPassedThrough, kHost, kDisk };

std::unique_ptr<torch::optim::Optimizer> adamw_in(Place place, const Weights& weights) {
  if (place == kUntouched) {
    return plain_adamw(weights);
  }
  spillway::OptimizerConfig config;
  config.tiers_options.log = [](const std::string&) {};
  switch (place) {
    case kPassedThrough:
      config.state = spillway::StateDevice::kNone;
      break;
    case kHost:
      config.state = spillway::StateDevice::kCpu;
      break;
    default:
      config.state = spillway::StateDevice::kNvme;  // Without a budget nothing but the ring stays in memory.
      config.nvme_path = std::filesystem::temp_directory_path().string();
  }
  return spillway::wrap(plain_adamw(weights), config);
}

// What is timed must be right first: three steps, bit for bit those of plain LibTorch. Once for each place.
void check(Place place) {
  static std::set<Place> checked;
  if (!checked.insert(place).second) {
    return;
  }
  const Weights expected = make_weights();
  const Weights weights = make_weights();
  const auto plain = plain_adamw(expected);
  const auto optimizer = adamw_in(place, weights);
  for (int step = 0; step < 3; ++step) {
    plain->step();
    optimizer->step();
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (std::memcmp(weights[i].const_data_ptr(), expected[i].const_data_ptr(), weights[i].nbytes()) != 0) {
      throw std::runtime_error("weights differ from plain LibTorch's");
    }
  }
}

void AdamWStep(benchmark::State& state) {
  const auto place = static_cast<Place>(state.range(0));
  check(place);
  const Weights weights = make_weights();
  const auto optimizer = adamw_in(place, weights);
  auto* wrapped = dynamic_cast<spillway::Optimizer*>(optimizer.get());
  optimizer->step();  // Makes the state; later steps read it.
  for (auto _ : state) {
    optimizer->step();
  }
  state.SetItemsProcessed(state.iterations() * kTensors * kNumel);
  if (wrapped != nullptr && place == kDisk) {
    const auto bytes = wrapped->steady_step_bytes();
    state.counters["state_bytes_per_second"] =
        benchmark::Counter(static_cast<double>(bytes.read + bytes.written),
                           benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1024);
    const auto stall_ns = static_cast<double>(wrapped->tiers()->stats().stall_ns.load());
    state.counters["stall_ns_per_step"] = benchmark::Counter(stall_ns / static_cast<double>(state.iterations() + 1));
  }
}

BENCHMARK(AdamWStep)
    ->ArgName("place")  // 0 plain LibTorch, 1 wrapped and passed through, 2 in host memory, 3 on disk.
    ->DenseRange(kUntouched, kDisk)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Repetitions(5)
    ->DisplayAggregatesOnly();

}  // namespace
}  // namespace spillway::optimizer::adam_bench

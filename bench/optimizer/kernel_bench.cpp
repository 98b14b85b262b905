// The kernels of a step beside the machine's own bound, a loop over the same streams of memory; `spillway bench
// optimizer` has whole steps beside LibTorch's. Each iteration runs all in turn, so that a machine that slows down
// slows all; counters give the medians: rates in elements per second, and ratios that are better when larger.
// SPILLWAY_BENCH_NUMEL sets how many elements there are (16 Mi).
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <spillway/offload/parallel.hpp>
#include <spillway/optimizer/adam_kernel.hpp>
#include <spillway/optimizer/coded_adam_kernel.hpp>
#include <spillway/optimizer/gradient_kernel.hpp>
#include <spillway/optimizer/state_codec.hpp>

#include "kernel_streams.hpp"

namespace spillway::bench {
namespace {

using optimizer::ElementType;
using optimizer::KernelTypes;
using optimizer::WeightForm;

std::uint64_t bench_numel() {
  const char* text = std::getenv("SPILLWAY_BENCH_NUMEL");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : std::uint64_t{1} << 24;
}

const offload::Parallel& threads() {
  static const offload::Parallel parallel;
  return parallel;
}

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Named {
  const char* name;
  std::function<void()> work;
};

// Times ours and the others in turn. @param others their rates appear under their names, as do ours over theirs.
void alternate(benchmark::State& state, std::uint64_t numel, const std::function<void()>& ours,
               const std::vector<Named>& others) {
  std::vector<double> our_times;
  std::vector<std::vector<double>> times(others.size()), ratios(others.size());
  ours();
  for (auto _ : state) {
    const double our_time = seconds(ours);
    state.SetIterationTime(our_time);
    our_times.push_back(our_time);
    for (std::size_t k = 0; k < others.size(); ++k) {
      times[k].push_back(seconds(others[k].work));
      ratios[k].push_back(times[k].back() / our_time);
    }
  }
  state.counters["ours"] = static_cast<double>(numel) / median(our_times);
  for (std::size_t k = 0; k < others.size(); ++k) {
    state.counters[others[k].name] = static_cast<double>(numel) / median(times[k]);
    state.counters[std::string("to_") + others[k].name] = median(ratios[k]);
  }
}

constexpr std::array kForms{
    KernelTypes{ElementType::kFloat32, WeightForm::kFloat32, ElementType::kFloat32},
    KernelTypes{ElementType::kBFloat16, WeightForm::kBFloat16, ElementType::kFloat32},
    KernelTypes{ElementType::kBFloat16, WeightForm::kBFloat16, ElementType::kBFloat16},
    KernelTypes{ElementType::kBFloat16, WeightForm::kMasterToBFloat16, ElementType::kFloat32},
    KernelTypes{ElementType::kBFloat16, WeightForm::kBFloat16AndRemainder, ElementType::kFloat32},
};
constexpr std::array kFormNames{"fp32", "bf16_weight_fp32_state", "all_bf16", "fp32_master_to_bf16",
                                "bf16_and_remainder"};

const optimizer::AdamStep& adamw_step() {
  static const optimizer::AdamStep step = optimizer::adam_step({.weight_decay = 1e-2, .decoupled = true}, 11);
  return step;
}

// Form, and tensors that the elements are cut into.
void AdamW(benchmark::State& state) {
  const KernelTypes& types = kForms[static_cast<std::size_t>(state.range(0))];
  const auto tensors = static_cast<std::uint64_t>(state.range(1));
  state.SetLabel(kFormNames[static_cast<std::size_t>(state.range(0))]);
  const AdamMemory memory(types, bench_numel(), threads());
  const auto parts = memory.parts(tensors, adamw_step());
  alternate(state, memory.numel, [&] { adam_update(parts, types, {}, threads()); },
            {{"bound", [&] { touch_streams(memory, threads()); }}});
  state.counters["bytes_per_element"] = static_cast<double>(memory.traffic_bytes()) / static_cast<double>(memory.numel);
}
BENCHMARK(AdamW)
    ->ArgNames({"form", "tensors"})
    ->ArgsProduct({{0, 1, 2, 3, 4}, {1}})
    ->ArgsProduct({{0, 2}, {1024, 16384}})
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime();

// All that a step does with bf16 gradients and float32 masters, against the same pass by pass with the fused update.
void WholeStep(benchmark::State& state) {
  const KernelTypes types = kForms[3];
  const AdamMemory memory(types, bench_numel(), threads());
  const auto parts = memory.parts(1, adamw_step());
  const optimizer::GradientRun gradient{memory.gradient.bytes().data(), memory.numel, types.gradient};
  std::vector<double> sums(optimizer::squares_blocks({&gradient, 1}));
  const auto check_and_norm = [&] {
    if (!optimizer::gradient_squares({&gradient, 1}, sums, threads())) {
      throw std::runtime_error("a gradient of the bench is not finite");
    }
  };
  alternate(state, memory.numel,
            [&] {
              check_and_norm();
              adam_update(parts, types, {.clip_factor = 0.37}, threads());
            },
            {{"bound", [&] { touch_streams(memory, threads()); }}, {"check_and_norm", check_and_norm}});
}
BENCHMARK(WholeStep)->Unit(benchmark::kMillisecond)->UseManualTime();

void GradientSquares(benchmark::State& state) {
  const auto type = state.range(0) == 0 ? ElementType::kFloat32 : ElementType::kBFloat16;
  const AdamMemory memory({type, WeightForm::kFloat32, ElementType::kFloat32}, bench_numel(), threads());
  const optimizer::GradientRun gradient{memory.gradient.bytes().data(), memory.numel, type};
  std::vector<double> sums(optimizer::squares_blocks({&gradient, 1}));
  const auto* words = reinterpret_cast<const std::uint64_t*>(gradient.elements);
  const auto read = [&] {
    threads().for_ranges(memory.gradient.bytes().size() / 8, 1 << 15, [&](offload::Range range) {
      std::uint64_t any = 0;
      for (std::uint64_t i = range.begin; i < range.end; ++i) {
        any |= words[i];
      }
      benchmark::DoNotOptimize(any);
    });
  };
  alternate(state, memory.numel,
            [&] {
              optimizer::gradient_squares({&gradient, 1}, sums, threads());
            },
            {{"bound", read}});
}
BENCHMARK(GradientSquares)->ArgName("bf16")->DenseRange(0, 1)->Unit(benchmark::kMillisecond)->UseManualTime();

void CodedAdamW(benchmark::State& state) {
  const KernelTypes types = kForms[0];
  const AdamMemory memory(types, bench_numel(), threads());
  std::vector<std::uint8_t> codes[2];
  std::vector<float> scales[2];
  for (int k = 0; k < 2; ++k) {
    codes[k].resize(memory.numel);
    scales[k].resize(optimizer::dynamic_blocks(memory.numel));
    const auto* values = reinterpret_cast<const float*>((k == 0 ? memory.exp_avg : memory.exp_avg_sq).bytes().data());
    encode_dynamic({values, memory.numel}, k == 0 ? optimizer::DynamicMap::kSigned : optimizer::DynamicMap::kUnsigned,
                   codes[k], scales[k], threads());
  }
  auto parts = memory.parts(1, adamw_step());
  parts[0].exp_avg = parts[0].exp_avg_sq = nullptr;
  const optimizer::CodedAdamTensor coded{
      parts[0], {codes[0].data(), scales[0].data()}, {codes[1].data(), scales[1].data()}, {}};
  alternate(state, memory.numel, [&] { coded_adam_update({&coded, 1}, types, {}, threads()); }, {});
}
BENCHMARK(CodedAdamW)->Unit(benchmark::kMillisecond)->UseManualTime();

}  // namespace
}  // namespace spillway::bench

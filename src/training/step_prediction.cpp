#include <spillway/app/training/step_prediction.hpp>

#include <algorithm>
#include <chrono>
#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>

namespace spillway::app {
namespace {

constexpr std::uint64_t kTrialSteps = 3;

double seconds_for(std::uint64_t bytes, double rate) { return bytes == 0 ? 0.0 : static_cast<double>(bytes) / rate; }

}  // namespace

StepPrediction predict_step(const MachineProbe& probe, const std::vector<PlacementRow>& placement,
                            const optimizer::StepBytes& step, std::uint64_t micro_batches, double compute_s) {
  std::uint64_t state_bytes = 0;
  std::uint64_t bank_bytes = 0;
  for (const PlacementRow& row : placement) {
    const bool kept = row.owner.find("staging") == std::string::npos && row.owner.find("tile") == std::string::npos;
    (row.owner.starts_with("bank") ? bank_bytes : state_bytes) += kept ? row.bytes : 0;
  }
  double read_rate = 0.0;
  double write_rate = 0.0;
  for (const DiskProbe& disk : probe.disks) {
    read_rate += disk.read_rate;
    write_rate += disk.write_rate;
  }
  StepPrediction prediction;
  prediction.links.push_back({.name = "disk",
                              .bytes = step.read + step.written,
                              .seconds = seconds_for(step.read, read_rate) + seconds_for(step.written, write_rate)});
  prediction.links.push_back({.name = "host memory",
                              .bytes = 2 * state_bytes + micro_batches * bank_bytes,
                              .seconds = seconds_for(state_bytes, probe.memory_copy_rate) +
                                         seconds_for(micro_batches * bank_bytes, probe.memory_read_rate)});
  prediction.links.push_back({.name = "compute", .bytes = 0, .seconds = compute_s});
  std::stable_sort(prediction.links.begin(), prediction.links.end(),
                   [](const LinkTime& a, const LinkTime& b) { return a.seconds > b.seconds; });
  return prediction;
}

double measure_compute_s(RunParts& parts, const RunPlan& plan) {
  queue::NegativeBank* const bank = parts.method().bank();
  while (bank != nullptr && bank->size() < bank->capacity()) {
    at::Tensor keys = at::randn({std::min<std::int64_t>(bank->capacity() - bank->size(), 4096), bank->dim()});
    const at::Tensor labels = bank->has_labels() ? at::arange(keys.size(0), at::kLong) : at::Tensor();
    bank->enqueue(keys.div_(keys.norm(2, 1, true)), labels);
  }
  const EpochOrder order = plan.order(0);
  double least_s = std::numeric_limits<double>::infinity();
  for (std::uint64_t index = 0; index < std::min(kTrialSteps, plan.steps_per_epoch()); ++index) {
    const std::uint64_t stalled_ns = parts.tiers().stats().stall_ns;
    const auto start = std::chrono::steady_clock::now();
    parts.step().run(order, plan.place(index));
    const std::chrono::duration<double> step = std::chrono::steady_clock::now() - start;
    least_s = std::min(least_s, step.count() - static_cast<double>(parts.tiers().stats().stall_ns - stalled_ns) * 1e-9);
  }
  return least_s;
}

}  // namespace spillway::app

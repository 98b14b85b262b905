#include <spillway/app/probe/gpu_probe.hpp>

#include <algorithm>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <spillway/app/bench/cost_clock.hpp>

namespace spillway::app {
namespace {

constexpr std::int64_t kBytes = std::int64_t{256} << 20;
constexpr int kPasses = 3;

double best_rate(const at::Tensor& target, const at::Tensor& source) {
  double rate = 0.0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const CostClock clock;
    target.copy_(source);  // From or to memory that is not pinned: done when it returns.
    rate = std::max(rate, static_cast<double>(kBytes) / clock.elapsed().seconds);
  }
  return rate;
}

}  // namespace

GpuProbe probe_link(c10::Device device) {
  const at::Tensor host = at::zeros({kBytes}, at::kByte);
  const at::Tensor there = at::empty({kBytes}, at::TensorOptions(at::kByte).device(device));
  GpuProbe probe{.name = device.str()};
  probe.to_device_rate = best_rate(there, host);
  probe.to_host_rate = best_rate(host, there);
  return probe;
}

std::vector<GpuProbe> probe_gpus() {
  std::vector<GpuProbe> gpus;
  if (at::globalContext().hasCUDA()) {
    const auto count = static_cast<c10::DeviceIndex>(at::detail::getCUDAHooks().deviceCount());
    for (c10::DeviceIndex index = 0; index < count; ++index) {
      gpus.push_back(probe_link(c10::Device(c10::kCUDA, index)));
    }
  }
  return gpus;
}

}  // namespace spillway::app

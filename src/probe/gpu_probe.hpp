#pragma once

#include <vector>

#include <c10/core/Device.h>

#include <spillway/app/probe/machine_probe.hpp>

namespace spillway::app {

/// Bytes per second from ordinary memory to `device` and back, as LibTorch copies. Blocks while it measures.
[[nodiscard]] GpuProbe probe_link(c10::Device device);

/// All GPUs that CUDA finds; none in a build or on a machine without.
[[nodiscard]] std::vector<GpuProbe> probe_gpus();

}  // namespace spillway::app

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/parallel.hpp>
#include <spillway/optimizer/adam_kernel.hpp>
#include <spillway/optimizer/kernel_types.hpp>

namespace spillway::bench {

/// Memory of one AdamW step on huge pages: gradient, weight, master, and two moments, with plausible values.
struct AdamMemory {
  AdamMemory(optimizer::KernelTypes with_types, std::uint64_t with_numel, const offload::Parallel& parallel);

  /// The whole as `tensors` equal parts.
  [[nodiscard]] std::vector<optimizer::AdamTensor> parts(std::uint64_t tensors, const optimizer::AdamStep& step) const;
  /// What a step has to move, each byte that is read and each that is written counted once.
  [[nodiscard]] std::uint64_t traffic_bytes() const;

  optimizer::KernelTypes types;
  std::uint64_t numel;
  offload::AlignedBlock gradient, weight, master, exp_avg, exp_avg_sq;
};

/// The machine's own bound: reads the gradient and rewrites everything else of `memory` in the same order, with next to
/// no arithmetic.
void touch_streams(const AdamMemory& memory, const offload::Parallel& parallel);

}  // namespace spillway::bench

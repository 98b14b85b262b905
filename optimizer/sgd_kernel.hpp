#pragma once

#include <cstdint>
#include <span>

#include <spillway/offload/parallel.hpp>
#include <spillway/optimizer/kernel_types.hpp>

namespace spillway::optimizer {

struct SgdRule {
  double lr = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
};

/// The constants of one update. Tensors that share options share it.
struct SgdStep {
  SplitFloat lr, momentum, one_minus_dampening, weight_decay;
  bool decays = false;
  bool nesterov = false;
};
[[nodiscard]] SgdStep sgd_step(const SgdRule& rule) noexcept;

/// One tensor, or a run of elements of one. @see AdamTensor.
struct SgdTensor {
  std::uint64_t numel = 0;
  const void* gradient = nullptr;
  void* weight = nullptr;
  void* master = nullptr;           ///< @see WeightForm; null for forms without.
  void* momentum_buffer = nullptr;  ///< Null without momentum.
  bool first = false;               ///< The buffer has no content yet: it becomes the gradient, undampened.
  const SgdStep* step = nullptr;
};

/// One step of SGD over all tensors. @see adam_update. Source: torch::optim::SGD.
void sgd_update(std::span<const SgdTensor> tensors, const KernelTypes& types, const GradientScale& scale,
                const offload::Parallel& parallel);

}  // namespace spillway::optimizer

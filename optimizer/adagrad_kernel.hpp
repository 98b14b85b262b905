#pragma once

#include <cstdint>
#include <span>

#include <spillway/offload/parallel.hpp>
#include <spillway/optimizer/kernel_types.hpp>

namespace spillway::optimizer {

struct AdagradRule {
  double lr = 1e-2;
  double lr_decay = 0.0;
  double weight_decay = 0.0;
  double eps = 1e-10;
};

/// The constants of one update. Tensors that share options and step count share it.
struct AdagradStep {
  SplitFloat weight_decay;
  SplitFloat denominator;  ///< w -= g / (sqrt(sum) × denominator + eps): the learning rate is in both.
  float eps = 0.0F;
  bool decays = false;
};

/// @param step 1-based count of this parameter's updates. Computed in float64.
[[nodiscard]] AdagradStep adagrad_step(const AdagradRule& rule, std::uint64_t step) noexcept;

/// One tensor, or a run of elements of one. @see AdamTensor.
struct AdagradTensor {
  std::uint64_t numel = 0;
  const void* gradient = nullptr;
  void* weight = nullptr;
  void* master = nullptr;  ///< @see WeightForm; null for forms without.
  void* sum = nullptr;     ///< Of the squared gradients; starts with the initial accumulator value.
  const AdagradStep* step = nullptr;
};

/// One step of Adagrad over all tensors. @see adam_update. Source: Duchi et al. 2011, as torch::optim::Adagrad has it.
void adagrad_update(std::span<const AdagradTensor> tensors, const KernelTypes& types, const GradientScale& scale,
                    const offload::Parallel& parallel);

}  // namespace spillway::optimizer

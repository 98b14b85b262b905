#pragma once

#include <cstdint>
#include <span>

#include <spillway/offload/parallel.hpp>
#include <spillway/optimizer/kernel_types.hpp>

namespace spillway::optimizer {

struct AdamRule {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = false;  ///< AdamW: the weight itself decays; else the decay is added to the gradient.
};

/// The constants of one update. Tensors that share options and step count share it.
struct AdamStep {
  SplitFloat beta1, one_minus_beta1, beta2, one_minus_beta2;
  SplitFloat decay;        ///< lr × weight decay where decoupled, else the weight decay.
  SplitFloat denominator;  ///< sqrt(v) × this + eps: the learning rate and both bias corrections are in here,
  float eps = 0.0F;        ///< so that what is left is w -= m / (sqrt(v) × denominator + eps).
  bool decays_weight = false;
  bool decays_gradient = false;
};

/// @param step 1-based count of this parameter's updates. Computed in float64, so that it does not drift.
[[nodiscard]] AdamStep adam_step(const AdamRule& rule, std::uint64_t step) noexcept;

/// One tensor, or a run of elements of one; memory of different tensors does not overlap, nothing needs alignment
/// beyond that of its elements.
struct AdamTensor {
  std::uint64_t numel = 0;
  const void* gradient = nullptr;
  void* weight = nullptr;
  void* master = nullptr;          ///< @see WeightForm; null for forms without.
  void* exp_avg = nullptr;         ///< m.
  void* exp_avg_sq = nullptr;      ///< v.
  void* max_exp_avg_sq = nullptr;  ///< Of amsgrad; null without.
  const AdamStep* step = nullptr;
};

/// One step of Adam or AdamW over all tensors, in one pass over memory: unscale, clip, update, cast. As LibTorch's
/// formula evaluated exactly from the same inputs, to within 4 ulp of max(|w|, |Δw|). The same bits for every
/// instruction set, number of threads, and split of a tensor into several. Blocks until done. Source: Kingma & Ba 2015,
/// Alg. 1; Loshchilov & Hutter 2019, Alg. 2; Reddi et al. 2018.
void adam_update(std::span<const AdamTensor> tensors, const KernelTypes& types, const GradientScale& scale,
                 const offload::Parallel& parallel);

}  // namespace spillway::optimizer

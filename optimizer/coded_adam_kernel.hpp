#pragma once

#include <cstdint>
#include <span>

#include <spillway/offload/parallel.hpp>
#include <spillway/optimizer/adam_kernel.hpp>
#include <spillway/optimizer/kernel_types.hpp>
#include <spillway/optimizer/state_codec.hpp>

namespace spillway::optimizer {

/// One field of state in 8 bits. @see encode_dynamic.
struct CodedField {
  std::uint8_t* codes = nullptr;  ///< [numel].
  float* scales = nullptr;        ///< [dynamic_blocks(numel)].
};

/// One tensor, or a run of elements of one that begins on a block bound. The tensor's own state fields stay null.
struct CodedAdamTensor {
  AdamTensor tensor;
  CodedField exp_avg;         ///< Signed map.
  CodedField exp_avg_sq;      ///< Unsigned map.
  CodedField max_exp_avg_sq;  ///< Unsigned map; null without amsgrad.
};

/// adam_update() with state in 8 bits: decoded, updated and encoded in cache, in one pass over memory. Fields that are
/// all zero mean no state yet. @param types its state type is not used.
void coded_adam_update(std::span<const CodedAdamTensor> tensors, const KernelTypes& types, const GradientScale& scale,
                       const offload::Parallel& parallel);

}  // namespace spillway::optimizer

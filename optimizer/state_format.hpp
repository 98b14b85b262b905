#pragma once

#include <cstdint>

namespace spillway::optimizer {

/// How the state of a parameter that kernels update lies in its block between steps. Arithmetic is in float32.
enum class StateFormat : std::uint8_t {
  kFloat32,
  /// Rounded to nearest in every step. Halves what a step moves. A second moment whose change in a step is below 2^-9
  /// of it stands still, which with beta2 = 0.999 it soon does: take a smaller beta2, or 8 bits, where that matters.
  kBFloat16,
  /// 8 bits an element and a float32 for every 256 of them: @see encode_dynamic. Adam and AdamW.
  kBlockwise8,
};

/// What is kept beside 16-bit parameters that kernels update, so that small steps are not lost in their rounding. It
/// lies in the block of the state. A parameter that is changed in place between steps (weights are loaded) is followed:
/// @see WeightForm.
enum class MasterFormat : std::uint8_t {
  kNone,       ///< The parameter is rounded in every step, as LibTorch's own is.
  kFloat32,    ///< The weight itself, of which the parameter is a copy rounded to nearest even.
  kRemainder,  ///< bfloat16: the low 16 bits of the weight alone, lossless (state_codec.hpp). float16: as kFloat32.
};

}  // namespace spillway::optimizer

#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::optimizer {

enum class ElementType : std::uint8_t { kFloat32, kBFloat16, kFloat16 };

/// How a weight lies in memory. All arithmetic is in float32.
///
/// What stands beside a published weight follows it: where somebody else has changed an element of the weight since the
/// last update, that element is taken as it is, and its old master is forgotten. (Beside a remainder it is taken up to
/// the rounding of bf16, and a zero exactly.) So masters and remainders that are all zeros, as in fresh memory, start
/// an update from the published weight.
enum class WeightForm : std::uint8_t {
  kFloat32,               ///< `weight` is float32, updated in place.
  kBFloat16,              ///< `weight` is updated in place and rounded to nearest even in every step.
  kFloat16,               ///< The same.
  kMasterToBFloat16,      ///< `master` is the float32 weight; `weight` is a copy of it, rounded to nearest even.
  kMasterToFloat16,       ///< The same.
  kBFloat16AndRemainder,  ///< `weight` and the signed 16-bit `master` together are a float32 (state_codec.hpp).
};

/// What the tensors of one call have in common.
struct KernelTypes {
  ElementType gradient = ElementType::kFloat32;
  WeightForm weight = WeightForm::kFloat32;
  ElementType state = ElementType::kFloat32;  ///< kFloat32 or kBFloat16.
  friend bool operator==(const KernelTypes&, const KernelTypes&) = default;
};

/// What happens to a gradient before the update, in this order, each result rounded to float32: as LibTorch's
/// operations would leave it in a float32 `.grad`, so that it does not matter where gradients lie.
struct GradientScale {
  double divisor = 1.0;                                    ///< Number of ranks whose mean is taken.
  double factor = 1.0;                                     ///< Multiplied in: 1 / loss scale.
  double clip_factor = 1.0;                                ///< Multiplied in.
  double limit = std::numeric_limits<double>::infinity();  ///< Then limited to [-limit, limit]; NaN stays NaN.
};

/// A constant of a step as the unevaluated sum of two floats, so that its rounding costs no accuracy.
struct SplitFloat {
  float high = 0.0F;
  float low = 0.0F;
};
[[nodiscard]] SplitFloat split_float(double value) noexcept;
/// Both above 0: times infinity they have no difference that is NaN. @param value  Not negative; 0 and
/// what is infinite as a float have no second part.
[[nodiscard]] SplitFloat split_positive(double value) noexcept;

/// 2 or 4.
[[nodiscard]] std::uint64_t bytes_of(ElementType type) noexcept;
/// Of the weight that a step publishes.
[[nodiscard]] std::uint64_t weight_bytes_of(WeightForm form) noexcept;
/// Of what stands beside it in `master`: 4, 2 or 0.
[[nodiscard]] std::uint64_t master_bytes_of(WeightForm form) noexcept;

/// The instruction sets that kernels are compiled for and that this machine has, the best first.
[[nodiscard]] std::vector<std::string> kernel_instruction_sets();
/// The one that kernels use.
[[nodiscard]] std::string kernel_instruction_set();
/// Makes kernels use this one; an empty name undoes it. For tests and measurements, while no kernel runs.
/// @throws ConfigError if the machine does not have it.
void use_kernel_instruction_set(std::string_view name);

}  // namespace spillway::optimizer

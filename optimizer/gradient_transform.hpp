#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/optimizer/kernel_types.hpp>

namespace spillway::offload {
class Parallel;
}

namespace spillway::optimizer {

/// What happens to a sum of gradients before the update, in the place of LibTorch's operation on `.grad`.
struct GradientTransform {
  enum class Kind : std::uint8_t {
    kDivide,    ///< By `value`: the mean over the ranks.
    kMultiply,  ///< By `value`: a loss scale is undone, a norm is clipped.
    kLimit,     ///< To [-value, value].
  };
  Kind kind = Kind::kMultiply;
  double value = 1.0;
};

/// Transforms floats in place, one after the other, each rounded to float32 as LibTorch's operation rounds it.
void transform(std::span<const GradientTransform> transforms, std::span<float> elements) noexcept;
/// The same, by LibTorch's operations, for a tensor of any floating-point type.
void transform(std::span<const GradientTransform> transforms, at::Tensor& gradient);

/// Writes elements [begin, begin + to.size()) of a tensor, in the order of its memory, as floats. @param tensor
/// float32, bfloat16 or float16, on the CPU and dense in memory.
void copy_as_floats(const at::Tensor& tensor, std::uint64_t begin, std::span<float> to);

/// What the transforms make of `sum`, which is on the CPU and dense in memory: a new tensor, written in one pass and of
/// at least 32 bits, or `sum` itself where there are none.
[[nodiscard]] at::Tensor transformed(const at::Tensor& sum, std::span<const GradientTransform> transforms,
                                     const offload::Parallel& parallel);

/// The same for kernels, to the bit. Nothing for an order that they don't know.
[[nodiscard]] std::optional<GradientScale> scale_of(std::span<const GradientTransform> transforms) noexcept;
[[nodiscard]] std::vector<GradientTransform> transforms_of(const GradientScale& scale);

}  // namespace spillway::optimizer

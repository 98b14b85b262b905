#pragma once

#include <cstdint>

namespace at {
class Tensor;
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

  /// In place, in the tensor's own type.
  void apply(at::Tensor& gradient) const;
};

}  // namespace spillway::optimizer

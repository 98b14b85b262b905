#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace spillway::queue {

/// A log-sum-exp per row over logits that arrive a tile at a time: the running maximum, and the running sum of
/// exp(logit - maximum). Starts with no logit at all (maximum -inf, sum 0); logits of -inf (masks) are allowed anywhere
/// and never give NaN. Not thread-safe.  Source: Milakov & Gimelshein 2018, alg. 3.
class OnlineLogSumExp {
 public:
  /// State for `rows` rows in `dtype` (kFloat or kDouble) on the CPU.
  OnlineLogSumExp(std::int64_t rows, at::ScalarType dtype);

  /// Folds in `logits` [rows, n], n >= 1, of the state's dtype, finite or -inf, and replaces them by
  /// exp(logit - maximum()): the weights with which the tile's values count from now on.
  /// @returns [rows, 1]: what values weighed with earlier weights must be multiplied by. Overwritten by the next fold.
  const at::Tensor& fold(at::Tensor& logits);

  /// [rows, 1]; -inf where there was no logit but -inf.
  [[nodiscard]] const at::Tensor& maximum() const noexcept { return maximum_; }
  /// [rows, 1]; 0 where there was no logit but -inf.
  [[nodiscard]] const at::Tensor& sum() const noexcept { return sum_; }
  /// [rows, 1]; log of the sum of exp of all logits: -inf where there was no logit but -inf.
  [[nodiscard]] at::Tensor value() const;

 private:
  at::Tensor maximum_;
  at::Tensor sum_;
  at::Tensor rescale_;
  double lowest_;  // Stands in for a maximum of -inf, so that -inf - maximum stays -inf.
};

/// log(1 + exp(x)) for every element, also where at::softplus turns into the identity.
[[nodiscard]] at::Tensor exact_softplus(const at::Tensor& x);

}  // namespace spillway::queue

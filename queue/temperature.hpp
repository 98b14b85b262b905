#pragma once

#include <ATen/core/Tensor.h>

namespace spillway::queue {

/// What logits are divided by: a number, or a tensor of one element, to which a gradient flows back where it requires
/// one. For a learnable logarithm s of the scale pass `s.neg().exp()`.
class Temperature {
 public:
  Temperature(double value) : value_(value) {}  // NOLINT(*-explicit-*): reads as a number.
  Temperature(at::Tensor value);                // NOLINT(*-explicit-*)

  /// @throws ConfigError, naming `loss`, unless it is finite and above 0 and, as a tensor, of one floating-point
  /// element on the CPU. Call it before value().
  void check(const char* loss) const;
  [[nodiscard]] double value() const noexcept { return value_; }
  /// Undefined where the temperature is a number.
  [[nodiscard]] const at::Tensor& tensor() const noexcept { return tensor_; }
  /// The gradient of the tensor, in its shape, from d loss / d log(1/temperature).
  [[nodiscard]] at::Tensor gradient(const at::Tensor& d_log_scale) const;

 private:
  at::Tensor tensor_;
  double value_;
};

}  // namespace spillway::queue

namespace spillway {
using queue::Temperature;
}  // namespace spillway

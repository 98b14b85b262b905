#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spillway::queue {

/// A slow copy of parameters, as the momentum encoders of MoCo and BYOL have: average = momentum * average +
/// (1 - momentum) * followed, once after each optimizer step. Computed in float32, or float64 for float64: for 16-bit
/// parameters the average has float32 masters, because at a momentum of 0.999 its steps are smaller than the rounding
/// of 16-bit numbers, and it would stand still. Not thread-safe.
class MovingAverage {
 public:
  /// @param average   Floating-point tensors that hold the average; overwritten with `followed`, and published to after
  ///                  each step. They need no gradient from here on.
  /// @param followed  The trained parameters, one for each of `average`, of the same shape and device; read in
  /// follow().
  /// @param momentum  Share of the former value that stays, 0 to 1.
  /// @throws ConfigError naming the tensor that does not fit, or the momentum.
  MovingAverage(std::vector<at::Tensor> average, std::vector<at::Tensor> followed, double momentum);

  /// One step towards the followed parameters as they are, apart from those that follow(index, …) has seen since the
  /// last one.
  void follow();
  /// One step of the average of one of them alone, towards `master`, its float32 copy from before its rounding to 16
  /// bits: for callers who come by masters one after the other. Once before each follow().
  /// @throws ConfigError naming the tensor that does not fit.
  void follow(std::size_t index, const at::Tensor& master);
  /// One step towards `masters`, float32 copies of the followed parameters from before their rounding to 16 bits, in
  /// the same order. @throws ConfigError naming the tensor that does not fit.
  void follow(std::span<const at::Tensor> masters);

  [[nodiscard]] double momentum() const noexcept { return momentum_; }
  /// For a schedule. @throws ConfigError unless 0 to 1.
  void set_momentum(double momentum);

  /// The average before rounding, one tensor for each, what a checkpoint needs; those that are not 16-bit are the
  /// tensors of `average` themselves. Change their values in place, then publish().
  [[nodiscard]] const std::vector<at::Tensor>& masters() const noexcept { return masters_; }
  /// Rounds the masters into the tensors of `average`.
  void publish();

 private:
  void publish(std::size_t index);

  std::vector<at::Tensor> average_;
  std::vector<at::Tensor> followed_;
  std::vector<at::Tensor> masters_;
  std::vector<bool> ahead_;  // Those that have made the step already.
  double momentum_;
};

/// BYOL's schedule: from `base` up to 1 along half a cosine; 1 - (1 - base) (cos(pi step / steps) + 1) / 2.
/// @param step  0 to `steps`, which is at least 1.  Source: Grill et al. 2020, sec. 3.3.
[[nodiscard]] double byol_momentum(double base, std::uint64_t step, std::uint64_t steps);

}  // namespace spillway::queue

namespace spillway {
using queue::byol_momentum;
using queue::MovingAverage;
}  // namespace spillway

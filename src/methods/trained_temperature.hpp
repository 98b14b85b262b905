#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/app/encoders/encoder.hpp>
#include <spillway/queue/temperature.hpp>

namespace spillway::app {

/// The temperature of a method: a number, or a parameter `temperature.log_scale`, the logarithm of its inverse, which
/// is trained with the network. Source: Radford et al. 2021, sec. 2.4 and 2.5, for the form and the bound.
class TrainedTemperature {
 public:
  explicit TrainedTemperature(const ContrastiveConfig& config);

  [[nodiscard]] queue::Temperature get() const { return at(log_scale_); }
  /// The same from a value of the parameter's, an undefined tensor where there is none.
  [[nodiscard]] queue::Temperature at(const at::Tensor& log_scale) const;
  /// [1]; undefined where the temperature is a number.
  [[nodiscard]] const at::Tensor& log_scale() const noexcept { return log_scale_; }
  /// None where it is a number.
  [[nodiscard]] std::vector<NamedTensor> parameters() const;
  /// After a step: keeps it at 0.01 or above.
  void bound();

 private:
  double value_;
  at::Tensor log_scale_;  // Undefined where the temperature is a number.
};

}  // namespace spillway::app

#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace spillway::app {

/// Turns images into features: what a ProjectedEncoder has before its head.
class Backbone : public torch::nn::Module {
 public:
  /// [N, channels, H, W] floating point to [N, feature_dim()].
  virtual at::Tensor forward(const at::Tensor& images) = 0;
  [[nodiscard]] virtual std::int64_t feature_dim() const = 0;
};

}  // namespace spillway::app

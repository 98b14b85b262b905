#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/optimizer/kernel_types.hpp>

namespace spillway::optimizer {

/// Puts scaled copies of some parameters' gradients in their place for as long as it lives, for updates that take
/// gradients as they are. A scale that changes nothing copies nothing.
class ScaledGradients {
 public:
  /// @param parameters  with gradients; a tied one may be there several times.
  ScaledGradients(const std::vector<at::Tensor>& parameters, const GradientScale& scale);
  ScaledGradients(const ScaledGradients&) = delete;
  ScaledGradients& operator=(const ScaledGradients&) = delete;
  ~ScaledGradients();

 private:
  struct Kept {
    at::Tensor parameter;
    at::Tensor gradient;
  };
  std::vector<Kept> kept_;
};

}  // namespace spillway::optimizer

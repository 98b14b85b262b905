#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/app/encoders/encoder.hpp>

namespace spillway::app {

/// The predictor of BYOL and SimSiam: linear, batch-norm, ReLU, linear, from projection_dim over predictor_hidden_dim
/// back to projection_dim. Names: predictor.fc1.weight, predictor.bn1.weight, … Always in training mode, as it is not
/// evaluated. Not thread-safe. Source: Grill et al. 2020, sec. 3.3; Chen & He 2021, sec. 3.
class Predictor {
 public:
  /// Weights are drawn from LibTorch's default generator; float32, on the CPU.
  explicit Predictor(const ContrastiveConfig& contrastive);
  Predictor(Predictor&&) noexcept;
  Predictor& operator=(Predictor&&) noexcept;
  ~Predictor();

  /// [N, projection_dim] float32 to the same.
  [[nodiscard]] at::Tensor predict(const at::Tensor& projections);
  [[nodiscard]] std::vector<NamedTensor> parameters() const;

 private:
  class Network;
  std::shared_ptr<Network> network_;  // Shared only because torch::nn::Module names its children through itself.
};

}  // namespace spillway::app

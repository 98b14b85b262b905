#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>

namespace spillway::app {

/// Pixels of an image.
struct ImageGeometry {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::int64_t channels = 1;
};

/// A parameter or buffer. The tensor shares storage with the network.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Encoder and projection head: what is trained, and what a momentum encoder copies.
///
/// Encoder small_cnn: one 3 × 3 convolution per entry of channels, each with batch-norm and ReLU, halved in size while
/// at least 4 pixels are left; features are averages over 2 × 2 regions. Encoder mlp: one linear layer per entry of
/// hidden, each with batch-norm and ReLU. Encoders resnet18, resnet34 and resnet50: make_resnet(), with the CIFAR stem
/// for images of up to 64 pixels a side, unless `stem` says otherwise. The head is one of two layers (Head), as
/// `projection_head` says. Batch-norms are grouped (GroupedBatchNorm).
///
/// Names are stable, because weights are hashed and saved in name order: encoder.conv1.weight,
/// encoder.bn1.running_mean, head.fc1.bias, … Starts in training mode. Not thread-safe. The torch::nn modules stay in
/// the source file: their headers cost every unit that includes them most of a minute.
class ProjectedEncoder {
 public:
  /// Weights are drawn from LibTorch's default generator (at::manual_seed first for a reproducible start); float32,
  /// on the CPU. Two objects of one configuration have equal names and shapes, in equal order.
  ProjectedEncoder(const EncoderConfig& encoder, const ContrastiveConfig& contrastive, ImageGeometry geometry);
  ProjectedEncoder(ProjectedEncoder&&) noexcept;
  ProjectedEncoder& operator=(ProjectedEncoder&&) noexcept;
  ~ProjectedEncoder();

  /// What the contrastive loss compares: [N, channels, H, W] float32 to [N, projection_dim] float32, rows of length 1.
  /// Layers compute in the type of their weights; what comes out is float32.
  [[nodiscard]] at::Tensor project(const at::Tensor& images);
  /// The same before the rows are brought to length 1.
  [[nodiscard]] at::Tensor projection(const at::Tensor& images);
  /// What is evaluated: [N, channels, H, W] float32 to [N, feature_dim()] float32.
  [[nodiscard]] at::Tensor features(const at::Tensor& images);
  [[nodiscard]] std::int64_t feature_dim() const noexcept;

  /// Batch statistics when true, running statistics when false.
  void train(bool on);
  /// In order of construction; `encoder.` before `head.`.
  [[nodiscard]] std::vector<NamedTensor> parameters() const;
  /// Running statistics of the batch-norms, and how often they moved (int64).
  [[nodiscard]] std::vector<NamedTensor> buffers() const;

 private:
  class Network;
  std::shared_ptr<Network> network_;  // Shared only because torch::nn::Module names its children through itself.
};

}  // namespace spillway::app

#pragma once

#include <cstdint>
#include <memory>

#include <spillway/app/encoders/backbone.hpp>

namespace spillway::app {

struct ResNetOptions {
  std::int64_t depth = 50;          ///< 18, 34 or 50 layers.
  bool cifar_stem = false;          ///< For small images: a 3 × 3 convolution of stride 1, and no pooling after it.
  bool zero_init_residual = false;  ///< The last batch-norm of each block starts at 0, so that blocks are identities.
  bool checkpointing = false;       ///< Each of the four stages runs again in backward (checkpointed()).
  std::int64_t groups = 1;          ///< Of the batch-norms.
};

/// A residual network without its classifier: features are averages over the image, 512 wide (50 layers: 2048).
///
/// Names and shapes of parameters and buffers are torchvision's, without fc: conv1.weight, bn1.num_batches_tracked,
/// layer1.0.conv1.weight, layer2.0.downsample.0.weight, … The CIFAR stem differs in one: conv1.weight is
/// [64, 3, 3, 3]. Weights have three channels: grey is shown in all three, so that weights which were
/// trained on colour images fit. As in torchvision the stride of a block of three layers is in its 3 × 3 convolution.
/// Convolutions are drawn as He et al. 2015 say, by fan-out; batch-norms start at 1 and 0.
/// Sources: He et al. 2016, "Deep residual learning", table 1; Chen et al. 2020, app. B.9 (the CIFAR stem); Goyal et
/// al. 2017, sec. 5.1 (the zeros).
/// Weights come from LibTorch's default generator; float32, on the CPU. Not thread-safe.
[[nodiscard]] std::shared_ptr<Backbone> make_resnet(const ResNetOptions& options);

}  // namespace spillway::app

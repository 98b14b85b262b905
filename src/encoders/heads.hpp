#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <spillway/app/config/config.hpp>
#include <spillway/app/encoders/grouped_batch_norm.hpp>

namespace spillway::app {

struct HeadShape {
  std::int64_t in = 0;
  std::int64_t hidden = 0;
  std::int64_t out = 0;
  std::int64_t groups = 1;  ///< Of its batch-norms.
};

/// Two linear layers with a ReLU between them. kBatchNorm: a batch-norm before the ReLU. kBatchNormOutput: that, and
/// one at the end. Children: fc1, bn1, fc2, bn2. A linear layer before a batch-norm has no bias.
class Head final : public torch::nn::Module {
 public:
  Head(HeadKind kind, const HeadShape& shape);

  /// [N, in] to [N, out].
  at::Tensor forward(const at::Tensor& rows);

 private:
  std::shared_ptr<torch::nn::LinearImpl> fc1_;
  std::shared_ptr<GroupedBatchNorm> bn1_;
  std::shared_ptr<torch::nn::LinearImpl> fc2_;
  std::shared_ptr<GroupedBatchNorm> bn2_;
};

}  // namespace spillway::app

#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <spillway/app/encoders/activation_checkpoint.hpp>

namespace spillway::app {

/// Batch normalisation with statistics per group of rows, as on that many devices: the rows of a batch are cut in
/// `groups` runs of neighbours (sizes differ by one at most, two rows each at least, so that a small last batch has
/// fewer groups), each normalised by its own mean and variance. The running statistics move once per forward pass, by
/// the mean of the groups' statistics weighted with their rows. With one group this is torch's BatchNorm.
/// MoCo needs at least two groups on one rank, and keys in another order than queries: with one group the statistics
/// tell which rows belong together. Source: He et al. 2020, sec. 3.3.
/// Not thread-safe in training mode.
class GroupedBatchNorm : public torch::nn::Module {
 public:
  /// `groups` is at least 1.
  GroupedBatchNorm(std::int64_t features, std::int64_t groups, double momentum = 0.1, double eps = 1e-5);

  /// @param input  [N, C] or [N, C, H, W], floating point.
  /// @return the same shape and dtype. In evaluation mode, and for a single row, whose statistics say nothing, the
  /// running statistics are used and left alone; so are they in Pass::kAgain.
  at::Tensor forward(const at::Tensor& input, Pass pass = Pass::kFirst);

  at::Tensor weight;               ///< [C], a parameter.
  at::Tensor bias;                 ///< [C], a parameter.
  at::Tensor running_mean;         ///< [C], a buffer.
  at::Tensor running_var;          ///< [C], a buffer: unbiased.
  at::Tensor num_batches_tracked;  ///< [] int64, a buffer: how often the running statistics moved.

 private:
  at::Tensor normalise_groups(const at::Tensor& input, Pass pass);
  void move_running_statistics(const at::Tensor& mean, const at::Tensor& variance);

  std::int64_t groups_;
  double momentum_;
  double eps_;
};

}  // namespace spillway::app

#pragma once

#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>

namespace spillway::optimizer {

struct LarsOptions : torch::optim::OptimizerCloneableOptions<LarsOptions> {
  LarsOptions(double rate = 0.3) : lr(rate) {}  // NOLINT(google-explicit-constructor): as LibTorch's options.

  double lr;
  double momentum = 0.9;
  double weight_decay = 0.0;         ///< Of parameters of two and more dimensions.
  double trust_coefficient = 0.001;  ///< Share of a parameter's length that a step of rate 1 goes.
  bool nesterov = false;

  [[nodiscard]] double get_lr() const override { return lr; }
  void set_lr(double value) override { lr = value; }
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

struct LarsParamState : torch::optim::OptimizerCloneableParamState<LarsParamState> {
  at::Tensor momentum_buffer;  ///< Undefined before the first step.

  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

/// LARS: SGD whose rate for each parameter follows the ratio of its length to that of its gradient, for large batches.
/// With g the gradient and w the parameter:
///     g += weight_decay w;  rate = lr trust_coefficient |w| / |g|, or lr where one of the two lengths is 0;
///     v = momentum v + rate g;  w -= v, or with nesterov  momentum v + rate g  of the new v.
/// Parameters of one dimension or none (biases, batch-norms) are neither decayed nor adapted: rate = lr. Lengths are
/// computed in float64. LARS looks at a parameter as a whole, so that ranks own whole ones.
/// Source: You, Gitman & Ginsburg 2017, "Large batch training of convolutional networks", algorithm 1, in the form of
/// Chen et al. 2020 (SimCLR), app. B.6 and its code: the length of the decayed gradient takes the place of
/// |g| + weight_decay |w|.
class Lars final : public torch::optim::Optimizer {
 public:
  /// @throws ConfigError for a number below 0, or nesterov without momentum.
  explicit Lars(const std::vector<torch::optim::OptimizerParamGroup>& groups, const LarsOptions& defaults = {});
  explicit Lars(std::vector<at::Tensor> parameters, const LarsOptions& defaults = {});

  /// @throws Error for a gradient that is sparse.
  at::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
};

}  // namespace spillway::optimizer

namespace spillway {
using optimizer::Lars;
using optimizer::LarsOptions;
}  // namespace spillway

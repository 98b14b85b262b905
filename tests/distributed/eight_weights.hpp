#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::optim {
class Optimizer;
}

namespace spillway::distributed {
class Collective;
}

namespace spillway::test {

/// What the classic 8-weight example ends at, to four decimals: rand({8, 8}) from seed 0, weights 1, the loss the sum
/// of a linear layer without bias, SGD with rate 0.01 and momentum 0.9, two epochs, micro-batches of the even and of
/// the odd rows averaged.
inline constexpr const char* kEightWeights = "0.9472 0.9440 0.9527 0.9687 0.9570 0.9343 0.9411 0.9186";

using MakeSgd = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> parameters)>;

/// The example's optimizer as LibTorch has it: what the functions below use unless told otherwise.
std::unique_ptr<torch::optim::Optimizer> plain_sgd(std::vector<at::Tensor> parameters);

/// One process that accumulates both micro-batches. @returns the weights, [8] fp32.
at::Tensor eight_weights_accumulated();
at::Tensor eight_weights_accumulated(const MakeSgd& make);

/// One of two ranks, each with one micro-batch.
at::Tensor eight_weights_on_rank(distributed::Collective& group);
at::Tensor eight_weights_on_rank(distributed::Collective& group, const MakeSgd& make);

/// "0.9472 0.9440 …"
std::string to_four_decimals(const at::Tensor& weights);
/// Exact, so that equal texts mean equal bits.
std::string to_hex_floats(const at::Tensor& weights);

}  // namespace spillway::test

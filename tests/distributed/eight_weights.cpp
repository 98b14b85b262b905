#include "distributed/eight_weights.hpp"

#include <array>
#include <cstdio>

#include <ATen/Context.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <torch/optim/sgd.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/distributed/gradient_mean.hpp>

namespace spillway::test {
namespace {

constexpr int kEpochs = 2;

struct Example {
  at::Tensor data;
  at::Tensor weights;

  Example() {
    at::manual_seed(0);
    data = at::rand({8, 8});
    weights = at::ones({1, 8}).requires_grad_();
  }

  /// Adds the gradient of the micro-batch of the rows `first`, `first` + 2, …
  void backward(int first) const { at::linear(data.slice(0, first, 8, 2), weights).sum().backward(); }
};

std::string print(const at::Tensor& weights, const char* format) {
  std::string text;
  const at::Tensor row = weights.detach().flatten();
  for (std::int64_t i = 0; i < row.numel(); ++i) {
    std::array<char, 40> number{};
    std::snprintf(number.data(), number.size(), format, static_cast<double>(row[i].item<float>()));
    text += (i == 0 ? "" : " ") + std::string(number.data());
  }
  return text;
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> plain_sgd(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(0.01).momentum(0.9));
}

at::Tensor eight_weights_accumulated() { return eight_weights_accumulated(plain_sgd); }

at::Tensor eight_weights_accumulated(const MakeSgd& make) {
  const Example example;
  const auto optimizer = make({example.weights});
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    optimizer->zero_grad();
    example.backward(0);
    example.backward(1);
    example.weights.mutable_grad().div_(2);
    optimizer->step();
  }
  return example.weights.detach().flatten();
}

at::Tensor eight_weights_on_rank(distributed::Collective& group) { return eight_weights_on_rank(group, plain_sgd); }

at::Tensor eight_weights_on_rank(distributed::Collective& group, const MakeSgd& make) {
  const Example example;
  const std::vector<at::Tensor> parameters{example.weights};
  const auto optimizer = make(parameters);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    optimizer->zero_grad();
    example.backward(group.rank());
    distributed::average_gradients(parameters, group);
    optimizer->step();
  }
  return example.weights.detach().flatten();
}

std::string to_four_decimals(const at::Tensor& weights) { return print(weights, "%.4f"); }
std::string to_hex_floats(const at::Tensor& weights) { return print(weights, "%a"); }

}  // namespace spillway::test

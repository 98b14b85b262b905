// An ordinary LibTorch training loop whose optimizer state lives on disk: only the lines at "Spillway" are new.
#include <cstdio>
#include <filesystem>
#include <memory>

#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <spillway/optimizer/sharded_optimizer.hpp>

int main(int count, char** arguments) {
  torch::nn::Sequential model(torch::nn::Linear(64, 256));
  for (int layer = 0; layer < 10; ++layer) {
    model->push_back(torch::nn::ReLU());
    model->push_back(torch::nn::Linear(256, 256));
  }
  model->push_back(torch::nn::Linear(256, 1));
  const at::Tensor input = at::randn({256, 64});
  const at::Tensor target = input.square().mean(1, /*keepdim=*/true);

  at::Tensor loss = at::mse_loss(model->forward(input), target);
  std::printf("loss %.4f before training\n", loss.item<double>());

  spillway::OptimizerConfig config;  // Spillway: where the state goes, and how much host memory it may take.
  config.nvme_path = count > 1 ? arguments[1] : std::filesystem::temp_directory_path().string();
  config.host_bytes = 3 << 20;
  auto optimizer = spillway::wrap(std::make_unique<torch::optim::AdamW>(model->parameters()), config);
  for (int step = 0; step < 50; ++step) {
    optimizer->zero_grad();  // Starts to read the state that the step below needs first.
    loss = at::mse_loss(model->forward(input), target);
    loss.backward();
    optimizer->step();
  }

  std::printf("loss %.4f after 50 steps\n", loss.item<double>());
  const auto moved = optimizer->steady_step_bytes();
  std::printf("each step reads %llu and writes %llu bytes of state\n", static_cast<unsigned long long>(moved.read),
              static_cast<unsigned long long>(moved.written));
}

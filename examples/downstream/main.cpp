// Uses the installed package: two steps of AdamW with its state in a swap file, on a loss over a bank of negatives.
#include <cstdio>
#include <exception>
#include <memory>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <torch/optim/adamw.h>

#include <spillway/optimizer/sharded_optimizer.hpp>
#include <spillway/queue/negative_bank.hpp>
#include <spillway/queue/streaming_loss.hpp>

namespace {

using Tiers = std::shared_ptr<spillway::offload::Tiers>;

void train(torch::optim::Optimizer& optimizer, at::Tensor& weights, const at::Tensor& images, const Tiers& tiers) {
  spillway::NegativeBank bank(tiers, {.capacity = 64, .dim = 8});
  bank.enqueue(images.mm(weights.detach()));
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    const at::Tensor queries = images.mm(weights);
    spillway::info_nce(queries, queries.detach(), bank, 0.2).loss.backward();
    optimizer.step();
  }
}

int run(const char* folder) {
  const at::Tensor images = at::randn({32, 16});
  at::Tensor plain_weights = at::randn({16, 8}).requires_grad_();
  at::Tensor weights = plain_weights.detach().clone().requires_grad_();
  const torch::optim::AdamWOptions options(1e-2);
  const auto tiers = std::make_shared<spillway::offload::Tiers>(spillway::offload::TiersOptions{.nvme_path = folder});

  torch::optim::AdamW plain({plain_weights}, options);
  train(plain, plain_weights, images, tiers);

  spillway::OptimizerConfig config;
  config.tiers = tiers;
  const auto optimizer = spillway::wrap(std::make_unique<torch::optim::AdamW>(std::vector{weights}, options), config);
  train(*optimizer, weights, images, tiers);

  const bool equal = at::equal(plain_weights, weights);
  std::printf("the offloaded and the plain optimizer %s\n", equal ? "agree bit for bit" : "DIFFER");
  return equal ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : ".");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

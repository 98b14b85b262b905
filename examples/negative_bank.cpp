// A bank of negatives that is larger than the memory that it may use, in a training loop of one's own.
#include <cstdio>
#include <filesystem>
#include <memory>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <torch/nn/functional/normalization.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <spillway/queue/negative_bank.hpp>
#include <spillway/queue/streaming_loss.hpp>

int main() {
  // 16,384 keys of 64 float16 elements are 2 MiB; they and all that it takes to stream them get 1 MiB of memory.
  spillway::offload::TiersOptions tiers;
  tiers.nvme_path = std::filesystem::temp_directory_path().string();
  spillway::BankOptions options;
  options.capacity = 16'384;
  options.dim = 64;
  options.segment_rows = 1'024;
  options.host_bytes = 1U << 20U;
  options.disk_allowed = true;
  spillway::NegativeBank bank(std::make_shared<spillway::offload::Tiers>(tiers), options);

  namespace F = torch::nn::functional;
  torch::nn::Linear encoder(32, 64);
  torch::nn::Linear key_encoder(32, 64);  // Follows the encoder slowly.
  torch::optim::AdamW optimizer(encoder->parameters(), torch::optim::AdamWOptions(3e-3));

  for (int step = 0; step < 100; ++step) {
    bank.prefetch();  // Reads from disk while the encoders run.
    const at::Tensor view = at::randn({256, 32});
    const at::Tensor q = F::normalize(encoder(view.add(at::randn({256, 32}).mul(0.1))));
    at::Tensor k;
    {
      const at::NoGradGuard no_grad;
      k = F::normalize(key_encoder(view.add(at::randn({256, 32}).mul(0.1))));
    }
    const spillway::InfoNceResult result = spillway::info_nce(q, k, bank, /*temperature=*/0.2);
    optimizer.zero_grad();
    result.loss.backward();
    optimizer.step();
    {
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < 2; ++i) {
        key_encoder->parameters()[i].mul_(0.95).add_(encoder->parameters()[i], 0.05);
      }
    }
    bank.enqueue(k);  // After the step: a key is no negative of its own query.
    if (step % 20 == 19) {
      std::printf("step %2d: loss %.3f, %lld negatives, %lld of %lld segments on disk\n", step + 1,
                  result.loss.item<double>(), static_cast<long long>(bank.size()),
                  static_cast<long long>(bank.segments_on(spillway::offload::Tier::kDisk)),
                  static_cast<long long>(bank.segments_on(spillway::offload::Tier::kDisk) +
                                         bank.segments_on(spillway::offload::Tier::kHost)));
    }
  }
}

#include <spillway/app/bench/loss_sides.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <spillway/app/bench/log_sinks.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/streaming_loss.hpp>

namespace spillway::app {

at::Tensor bench_unit_rows(std::int64_t rows, std::int64_t dim, std::uint64_t seed) {
  const at::Tensor raw = at::randn({rows, dim}, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kFloat));
  return raw.div(raw.norm(2, {1}, /*keepdim=*/true));
}

LossAndGradient streamed_loss(const at::Tensor& q, const at::Tensor& k, queue::NegativeBank& bank) {
  const at::Tensor leaf = q.detach().requires_grad_();
  const at::Tensor loss = queue::info_nce(leaf, k, bank, kBenchTemperature).loss;
  loss.backward();
  return {loss.detach(), leaf.grad()};
}

LossAndGradient table_loss(const at::Tensor& q, const at::Tensor& k, const at::Tensor& keys) {
  const at::Tensor leaf = q.detach().requires_grad_();
  const at::Tensor positive = leaf.mul(k).sum(1, /*keepdim=*/true);
  const at::Tensor logits = at::cat({positive, leaf.matmul(keys.t())}, 1).div(kBenchTemperature);
  const at::Tensor loss = at::cross_entropy_loss(logits, at::zeros({q.size(0)}, at::TensorOptions(at::kLong)));
  loss.backward();
  return {loss.detach(), leaf.grad()};
}

BareProducts::BareProducts(at::Tensor q, at::Tensor keys)
    : q_(std::move(q)),
      keys_(std::move(keys)),
      logits_(at::empty({q_.size(0), queue::kTileRows}, q_.options())),
      weighted_(at::empty(q_.sizes(), q_.options())) {}

void BareProducts::run() {
  weighted_.zero_();
  for (std::int64_t first = 0; first < keys_.size(0); first += queue::kTileRows) {
    const std::int64_t rows = std::min(queue::kTileRows, keys_.size(0) - first);
    const at::Tensor tile = keys_.narrow(0, first, rows);
    at::Tensor logits = logits_.narrow(1, 0, rows);
    at::mm_out(logits, q_, tile.t());
    weighted_.addmm_(logits, tile);
  }
}

void compare_losses(const std::string& row, const LossAndGradient& ours, const LossAndGradient& theirs,
                    double tolerance) {
  const double loss = std::abs(ours.loss.item<double>() / theirs.loss.item<double>() - 1.0);
  const double gradient = (ours.d_q.sub(theirs.d_q).norm().div(theirs.d_q.norm())).item<double>();
  if (!(loss <= tolerance && gradient <= tolerance)) {
    throw Error("the sides of " + row + " compute different things: relative difference of the losses " +
                std::to_string(loss) + ", of the gradients " + std::to_string(gradient));
  }
}

std::unique_ptr<queue::NegativeBank> resident_bank(const at::Tensor& keys, at::ScalarType dtype) {
  offload::TiersOptions tiers;
  tiers.log = say_nothing;
  queue::BankOptions options;
  options.capacity = keys.size(0);
  options.dim = keys.size(1);
  options.dtype = dtype;
  options.host_bytes = offload::kUnlimitedBytes;
  auto bank = std::make_unique<queue::NegativeBank>(std::make_shared<offload::Tiers>(std::move(tiers)), options);
  bank->enqueue(keys);
  return bank;
}

}  // namespace spillway::app

// The losses within a batch, beside the table of logits that is the usual way, and cached accumulation beside the plain
// one, which has the gradient of other, smaller batches.
//
// NtXent/{tiles,table}/N: loss and backward of N pairs of dimension 128. Accumulation/{cached,plain}/N: one optimizer
// step's gradients over 8 micro-batches of N pairs, through an encoder of three layers.
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <benchmark/benchmark.h>

#include <spillway/queue/cached_accumulation.hpp>
#include <spillway/queue/contrastive_loss.hpp>

namespace spillway::queue::contrastive_loss_bench {
namespace {

constexpr std::int64_t kDim = 128;
constexpr std::int64_t kPixels = 784;
constexpr std::int64_t kHidden = 1'024;
constexpr std::int64_t kMicroBatches = 8;
constexpr double kTemperature = 0.1;

at::Tensor random_rows(std::int64_t rows, std::int64_t dim, std::uint64_t seed) {
  return at::randn({rows, dim}, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kFloat));
}

at::Tensor unit_rows(const at::Tensor& rows) { return rows / rows.norm(2, {1}, /*keepdim=*/true); }

at::Tensor table_loss(const at::Tensor& view0, const at::Tensor& view1) {
  const at::Tensor rows = at::cat({view0, view1});
  const std::int64_t n = view0.size(0);
  const at::Tensor logits = rows.matmul(rows.t())
                                .div(kTemperature)
                                .masked_fill(at::eye(2 * n, at::kBool), -std::numeric_limits<double>::infinity());
  return at::cross_entropy_loss(logits, at::arange(2 * n).add(n).remainder(2 * n));
}

at::Tensor tiled_loss(const at::Tensor& view0, const at::Tensor& view1) {
  return nt_xent(view0, view1, kTemperature).loss;
}

void loss_and_backward(benchmark::State& state, at::Tensor (*loss)(const at::Tensor&, const at::Tensor&)) {
  const at::Tensor rows0 = unit_rows(random_rows(state.range(0), kDim, 1));
  const at::Tensor rows1 = unit_rows(random_rows(state.range(0), kDim, 2));
  if (std::abs(tiled_loss(rows0, rows1).item<double>() - table_loss(rows0, rows1).item<double>()) > 1e-4) {
    throw std::runtime_error("the tiled loss is wrong");
  }
  for (auto iteration : state) {
    const at::Tensor leaf0 = rows0.detach().requires_grad_();
    const at::Tensor leaf1 = rows1.detach().requires_grad_();
    loss(leaf0, leaf1).backward();
    benchmark::DoNotOptimize(leaf0.grad().data_ptr());
  }
}

void tiles(benchmark::State& state) { loss_and_backward(state, tiled_loss); }
void table(benchmark::State& state) { loss_and_backward(state, table_loss); }

/// An encoder and the images of one step.
struct Step {
  explicit Step(std::int64_t pairs)
      : rows(pairs),
        weights{random_rows(kHidden, kPixels, 1) / 28, random_rows(kHidden, kHidden, 2) / 32,
                random_rows(kDim, kHidden, 3) / 32},
        images0(random_rows(kMicroBatches * pairs, kPixels, 4)),
        images1(random_rows(kMicroBatches * pairs, kPixels, 5)) {
    for (at::Tensor& weight : weights) weight.requires_grad_();
  }

  [[nodiscard]] std::vector<at::Tensor> encode(std::int64_t micro_batch) const {
    std::vector<at::Tensor> views;
    for (const at::Tensor& images : {images0, images1}) {
      at::Tensor x = images.narrow(0, micro_batch * rows, rows);
      for (const at::Tensor& weight : weights) x = at::relu(x).matmul(weight.t());
      views.push_back(unit_rows(x));
    }
    return views;
  }

  std::int64_t rows;
  std::vector<at::Tensor> weights;
  at::Tensor images0, images1;
};

void plain(benchmark::State& state) {
  const Step step(state.range(0));
  for (auto iteration : state) {
    for (std::int64_t micro_batch = 0; micro_batch < kMicroBatches; ++micro_batch) {
      const std::vector<at::Tensor> views = step.encode(micro_batch);
      (tiled_loss(views[0], views[1]) / kMicroBatches).backward();
    }
    benchmark::DoNotOptimize(step.weights.front().grad().data_ptr());
  }
}

void cached(benchmark::State& state) {
  const Step step(state.range(0));
  CachedAccumulation accumulation;
  accumulation.micro_batches = kMicroBatches;
  accumulation.encode = [&](std::int64_t micro_batch) { return step.encode(micro_batch); };
  accumulation.loss = [](const std::vector<at::Tensor>& views) { return tiled_loss(views[0], views[1]); };
  for (auto iteration : state) {
    benchmark::DoNotOptimize(accumulation.run().data_ptr());
  }
}

BENCHMARK(tiles)->Name("NtXent/tiles")->Arg(256)->Arg(1'024)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(table)->Name("NtXent/table")->Arg(256)->Arg(1'024)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(cached)->Name("Accumulation/cached")->Arg(64)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(plain)->Name("Accumulation/plain")->Arg(64)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace spillway::queue::contrastive_loss_bench

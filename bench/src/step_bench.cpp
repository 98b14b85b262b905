// One step of `spillway train`'s loop on synthetic images: with everything in memory, and with optimizer state and
// cold segments of the bank streamed from a nameless file in the current folder. Stall is what the disk was not hidden.
#include <benchmark/benchmark.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>

#include <spillway/app/data/dataset.hpp>
#include <spillway/app/methods/moco.hpp>
#include <spillway/app/training/optimizer_factory.hpp>
#include <spillway/app/training/run_plan.hpp>
#include <spillway/app/training/run_tiers.hpp>
#include <spillway/app/training/training_step.hpp>
#include <spillway/distributed/single_process.hpp>

namespace spillway::app::step_bench {
namespace {

Config config_of(bool on_disk) {
  Config config;
  config.encoder.channels = {32, 64, 64, 64, 64, 64};
  config.contrastive.queue_size = 4096;
  config.data.synthetic = {.images = 512, .classes = 10, .side = 28};
  config.zero.sub_group_size = 40000;
  config.zero.offload_optimizer.buffer_count = 3;
  if (on_disk) {
    config.zero.offload_optimizer.device = OffloadDevice::kNvme;
    config.contrastive.bank.device = OffloadDevice::kNvme;
    config.contrastive.bank.host_bytes = 384 << 10;
    config.offload.host_bytes = 2304 << 10;
    config.offload.nvme_paths = {"."};
  }
  return config;
}

void run_steps(benchmark::State& state, bool on_disk) {
  const Config config = config_of(on_disk);
  const ImageSet images = make_synthetic(config.data.synthetic, config.seed);
  const RunPlan plan(config, images.size());
  distributed::SingleProcess rank;
  const auto tiers = make_tiers(config, [](const std::string&) {});
  at::manual_seed(config.seed);
  Moco moco(config, {images.width, images.height}, tiers);
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& parameter : moco.network().parameters()) parameters.push_back(parameter.tensor);
  const auto optimizer = make_optimizer(config, std::move(parameters), tiers);
  TrainingStep step(config, images, moco, *optimizer, rank);
  const EpochOrder order = plan.order(0);

  std::uint64_t window = 0;
  const auto next = [&] { return step.run(order, plan.place(window++ % plan.steps_per_epoch())); };
  // So many that the bank is full and its cold segments are on disk.
  while (moco.bank()->size() < moco.bank()->capacity()) {
    if (!std::isfinite(next().loss)) state.SkipWithError("the loss is not finite");
  }
  const std::uint64_t read = tiers->stats().read_bytes;
  const std::uint64_t stalled_ns = tiers->stats().stall_ns;
  std::uint64_t samples = 0;
  for (auto _ : state) samples += next().samples;

  const auto iterations = static_cast<double>(state.iterations());
  state.SetItemsProcessed(static_cast<std::int64_t>(samples));
  state.counters["read_bytes_per_step"] = static_cast<double>(tiers->stats().read_bytes - read) / iterations;
  state.counters["stall_ms_per_step"] = static_cast<double>(tiers->stats().stall_ns - stalled_ns) * 1e-6 / iterations;
}

void StepInMemory(benchmark::State& state) { run_steps(state, false); }
void StepOnDisk(benchmark::State& state) { run_steps(state, true); }
BENCHMARK(StepInMemory)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(StepOnDisk)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace spillway::app::step_bench

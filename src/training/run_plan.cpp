#include <spillway/app/training/run_plan.hpp>

#include <string>

#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

BatchShape batch_shape(const Config& config, std::uint64_t world_size) {
  BatchShape shape;
  shape.train_batch = config.train_batch_size;
  shape.world_size = world_size;
  shape.accumulation = config.gradient_accumulation_steps;
  shape.drop_last = config.data.drop_last;
  return shape;
}

}  // namespace

RunPlan::RunPlan(const Config& config, std::uint32_t samples, const RankPlace& place)
    : shape_(batch_shape(config, place.world_size)), samples_(samples), seed_(config.seed) {
  const EpochOrder order(samples_, shape_, seed_, 0);
  for (std::uint64_t window = 0; window < order.steps(); ++window) {
    Window& rows = windows_.emplace_back();
    for (std::uint64_t micro = 0; micro < shape_.accumulation; ++micro) {
      std::int64_t all = 0;
      for (std::uint64_t rank = 0; rank < shape_.world_size; ++rank) {
        const auto count = static_cast<std::int64_t>(order.micro_batch(window, rank, micro).size());
        if (rank == place.rank && count > 0) rows.own.push_back(count);
        all += count;
      }
      rows.all += all;
      rows.rounds += all > 0 ? 1 : 0;
    }
  }
  if (windows_.empty()) {
    throw Error("training set: " + std::to_string(samples) + " images make no batch of " +
                std::to_string(shape_.train_batch) + "; lower train_batch_size, or set dataloader_drop_last to false");
  }
  steps_ = config.steps != 0 ? config.steps : config.epochs * windows_.size();
}

StepPlace RunPlan::place(std::uint64_t step) const noexcept { return {step / windows_.size(), step % windows_.size()}; }

std::span<const std::int64_t> RunPlan::rows(std::uint64_t step) const noexcept {
  return windows_[step % windows_.size()].own;
}

WindowRows RunPlan::window_rows(std::uint64_t step) const noexcept {
  const Window& window = windows_[step % windows_.size()];
  return {window.own, window.all, window.rounds};
}

EpochOrder RunPlan::order(std::uint64_t epoch) const {
  return {samples_, shape_, seed_, static_cast<std::uint32_t>(epoch)};
}

}  // namespace spillway::app

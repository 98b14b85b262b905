#include <spillway/app/training/run_plan.hpp>

#include <string>

#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

BatchShape batch_shape(const Config& config) {
  BatchShape shape;
  shape.train_batch = config.train_batch_size;
  shape.accumulation = config.gradient_accumulation_steps;
  shape.drop_last = config.data.drop_last;
  return shape;
}

}  // namespace

RunPlan::RunPlan(const Config& config, std::uint32_t samples)
    : shape_(batch_shape(config)), samples_(samples), seed_(config.seed) {
  const EpochOrder order(samples_, shape_, seed_, 0);
  for (std::uint64_t window = 0; window < order.steps(); ++window) {
    std::vector<std::int64_t>& rows = windows_.emplace_back();
    for (std::uint64_t micro = 0; micro < shape_.accumulation; ++micro) {
      const auto count = static_cast<std::int64_t>(order.micro_batch(window, 0, micro).size());
      if (count > 0) rows.push_back(count);
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
  return windows_[step % windows_.size()];
}

EpochOrder RunPlan::order(std::uint64_t epoch) const {
  return {samples_, shape_, seed_, static_cast<std::uint32_t>(epoch)};
}

}  // namespace spillway::app

#include <spillway/app/training/run_announcement.hpp>

#include <array>
#include <cstdio>

#include <ATen/Parallel.h>

#include <spillway/app/config/config_keys.hpp>
#include <spillway/app/training/mixed_precision.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::app {

using offload::format_bytes;

std::string describe_task(const Config& config, const Dataset& dataset, const RunPlan& plan, std::uint64_t world_size) {
  const ImageSet& train = dataset.images.train;
  return std::string(to_string(config.method)) + " on " + dataset.name + ": " + std::to_string(train.size()) +
         " images of " + std::to_string(train.width) + " x " + std::to_string(train.height) + " to train on, " +
         std::to_string(dataset.images.test.size()) + " to test on; " + std::to_string(plan.steps()) + " steps of " +
         std::to_string(config.train_batch_size) + " images" +
         (world_size > 1 ? " on " + std::to_string(world_size) + " ranks, " : ", ") +
         std::to_string(at::get_num_threads()) + " threads";
}

std::vector<std::string> describe_method(const Config& config) {
  std::vector<std::string> lines;
  if (config.has_bank()) {
    lines.push_back("the bank starts empty, so that the loss rises while its " +
                    std::to_string(config.contrastive.queue_size) + " rows fill up");
  }
  if (config.method == Method::kMoco && config.contrastive.batch_norm_groups < 2) {
    lines.emplace_back(
        "contrastive.batch_norm_groups is 1: batch statistics tell which rows belong together; take 2 or more");
  }
  if (const auto line = slow_precision(config)) lines.push_back(*line);
  return lines;
}

std::string describe_skip(const StepMetrics& metrics, const std::string& overflow) {
  std::array<char, 64> scale{};
  std::snprintf(scale.data(), scale.size(), " at a loss scale of %g", metrics.loss_scale);
  return "step " + std::to_string(metrics.step) + " is skipped: " + overflow + " is not finite" +
         (metrics.loss_scale == 1.0 ? "" : scale.data());
}

std::string describe_traffic(const RunTraffic& predicted, std::uint64_t steps) {
  const auto& [sum, last] = predicted;
  return "predicted disk traffic: " + format_bytes(sum.read) + " read and " + format_bytes(sum.written) +
         " written in the run; " + format_bytes(sum.read / steps) + " and " + format_bytes(sum.written / steps) +
         " a step on average, " + format_bytes(last.read) + " and " + format_bytes(last.written) + " in the last one";
}

}  // namespace spillway::app

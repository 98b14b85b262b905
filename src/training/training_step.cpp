#include <spillway/app/training/training_step.hpp>

#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <spillway/app/data/batches.hpp>
#include <spillway/distributed/gradient_mean.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr std::uint32_t kKeyOrderPurpose = 0x4B000000U;

}  // namespace

TrainingStep::TrainingStep(const Config& config, const ImageSet& images, TrainingMethod& method,
                           optimizer::Optimizer& optimizer, distributed::Collective& ranks, offload::Trace* trace)
    : config_(config), images_(images), method_(method), optimizer_(optimizer), ranks_(ranks), trace_(trace) {
  for (const NamedTensor& parameter : method_.parameters()) parameters_.push_back(parameter.tensor);
}

StepResult TrainingStep::run(const EpochOrder& order, const StepPlace& place) {
  optimizer_.prefetch();
  phases_ = {};
  StepResult result;
  for (std::uint64_t micro = 0; micro < config_.gradient_accumulation_steps; ++micro) {
    result.samples += order.micro_batch(place.window, 0, micro).size();
  }
  for (std::uint64_t micro = 0; micro < config_.gradient_accumulation_steps; ++micro) {
    const std::size_t rows = order.micro_batch(place.window, 0, micro).size();
    if (rows == 0) continue;  // A last window of fewer samples than micro-batches.
    result.loss += accumulate(order, place, micro, static_cast<double>(rows) / static_cast<double>(result.samples));
  }
  {
    const PhaseSpan span(trace_, phases_, StepPhase::kGradients);
    distributed::average_gradients(parameters_, ranks_);
    result.grad_norm = clip();
  }
  {
    const PhaseSpan span(trace_, phases_, StepPhase::kUpdate);
    optimizer_.step();
  }
  // Not the optimizer's zero_grad(), which starts the reads of a next step that may never come.
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  {
    const PhaseSpan span(trace_, phases_, StepPhase::kAfter);
    method_.finish_window(true);
  }
  result.phases = phases_;
  return result;
}

/// Adds a micro-batch's part of the window's gradient; gives its part of the window's loss.
double TrainingStep::accumulate(const EpochOrder& order, const StepPlace& place, std::uint64_t micro, double share) {
  method_.prefetch();
  std::optional<PhaseSpan> span(std::in_place, trace_, phases_, StepPhase::kViews);
  const std::span<const std::uint32_t> samples = order.micro_batch(place.window, 0, micro);
  const auto epoch = static_cast<std::uint32_t>(place.epoch);
  const AugmentConfig& augment = config_.data.augment;
  ViewPair views{.view0 = make_view(images_, samples, augment, {config_.seed, epoch, 0}),
                 .view1 = make_view(images_, samples, augment, {config_.seed, epoch, 1}),
                 .labels = make_labels(images_, samples)};
  const auto batch = static_cast<std::uint32_t>(place.window * config_.gradient_accumulation_steps + micro);
  span.emplace(trace_, phases_, StepPhase::kForward);
  views.key_order = {config_.seed, kKeyOrderPurpose, epoch, batch};
  const at::Tensor loss = method_.loss(views) * share;
  const auto value = loss.item<double>();
  if (!std::isfinite(value)) {
    throw Error("the loss is " + std::to_string(value) + " in epoch " + std::to_string(place.epoch) + ", step " +
                std::to_string(place.window + 1) + " of it: lower optimizer.params.lr or set gradient_clipping");
  }
  span.emplace(trace_, phases_, StepPhase::kBackward);
  loss.backward();
  return value;
}

double TrainingStep::clip() {
  const double limit =
      config_.gradient_clipping > 0.0 ? config_.gradient_clipping : std::numeric_limits<double>::infinity();
  return optimizer_.clip_grad_norm_(limit);
}

}  // namespace spillway::app

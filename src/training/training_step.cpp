#include <spillway/app/training/training_step.hpp>

#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <ATen/ops/cat.h>

#include <spillway/app/data/batches.hpp>
#include <spillway/distributed/gradient_mean.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/cached_accumulation.hpp>

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
  const Window rows = window(order, place);
  StepResult result;
  result.samples = rows.samples;
  if (WindowLoss* const compared = method_.window_loss()) {
    result.loss = accumulate_cached(rows, *compared);
  } else {
    for (const std::uint64_t micro : rows.micro_batches) result.loss += accumulate(rows, micro);
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

TrainingStep::Window TrainingStep::window(const EpochOrder& order, const StepPlace& place) const {
  Window window{.order = order, .place = place, .micro_batches = {}};
  for (std::uint64_t micro = 0; micro < config_.gradient_accumulation_steps; ++micro) {
    const std::size_t rows = order.micro_batch(place.window, 0, micro).size();
    window.samples += rows;
    if (rows > 0) window.micro_batches.push_back(micro);
  }
  return window;
}

ViewPair TrainingStep::views(const Window& window, std::uint64_t micro) const {
  const std::span<const std::uint32_t> samples = window.order.micro_batch(window.place.window, 0, micro);
  const auto epoch = static_cast<std::uint32_t>(window.place.epoch);
  const auto batch = static_cast<std::uint32_t>(window.place.window * config_.gradient_accumulation_steps + micro);
  const AugmentConfig& augment = config_.data.augment;
  return {.view0 = make_view(images_, samples, augment, {config_.seed, epoch, 0}),
          .view1 = make_view(images_, samples, augment, {config_.seed, epoch, 1}),
          .labels = make_labels(images_, samples),
          .key_order = {config_.seed, kKeyOrderPurpose, epoch, batch}};
}

/// Adds a micro-batch's part of the window's gradient; gives its part of the window's loss.
double TrainingStep::accumulate(const Window& window, std::uint64_t micro) {
  method_.prefetch();
  std::optional<PhaseSpan> span(std::in_place, trace_, phases_, StepPhase::kViews);
  const ViewPair pair = views(window, micro);
  const double share = static_cast<double>(pair.view0.size(0)) / static_cast<double>(window.samples);
  span.emplace(trace_, phases_, StepPhase::kForward);
  const at::Tensor loss = method_.loss(pair).mul(share);
  const auto value = loss.item<double>();
  require_finite(value, window.place);
  span.emplace(trace_, phases_, StepPhase::kBackward);
  loss.backward();
  return value;
}

/// The gradient of the window as one batch, in the activation memory of a micro-batch. Gives the window's loss.
double TrainingStep::accumulate_cached(const Window& window, WindowLoss& method) {
  std::optional<PhaseSpan> span(std::in_place, trace_, phases_, StepPhase::kViews);
  std::vector<ViewPair> pairs;
  std::vector<at::Tensor> labels;
  for (const std::uint64_t micro : window.micro_batches) {
    labels.push_back(pairs.emplace_back(views(window, micro)).labels);
  }
  queue::CachedAccumulation cached;
  cached.micro_batches = static_cast<std::int64_t>(pairs.size());
  cached.encode = [&](std::int64_t micro) { return method.embed(pairs[static_cast<std::size_t>(micro)]); };
  cached.loss = [&](const std::vector<at::Tensor>& embeddings) {
    const at::Tensor loss = method.compare(embeddings, at::cat(labels));
    require_finite(loss.item<double>(), window.place);
    span.emplace(trace_, phases_, StepPhase::kBackward);
    return loss;
  };
  for (const NamedTensor& buffer : method_.network().buffers()) cached.buffers.push_back(buffer.tensor);
  span.emplace(trace_, phases_, StepPhase::kForward);
  return cached.run().item<double>();
}

void TrainingStep::require_finite(double loss, const StepPlace& place) const {
  if (!std::isfinite(loss)) {
    throw Error("the loss is " + std::to_string(loss) + " in epoch " + std::to_string(place.epoch) + ", step " +
                std::to_string(place.window + 1) + " of it: lower optimizer.params.lr or set gradient_clipping");
  }
}

double TrainingStep::clip() {
  const double limit =
      config_.gradient_clipping > 0.0 ? config_.gradient_clipping : std::numeric_limits<double>::infinity();
  return optimizer_.clip_grad_norm_(limit);
}

}  // namespace spillway::app

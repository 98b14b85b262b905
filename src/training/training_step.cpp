#include <spillway/app/training/training_step.hpp>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>

#include <spillway/app/data/batches.hpp>
#include <spillway/app/training/non_finite.hpp>
#include <spillway/distributed/gradient_mean.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/cached_accumulation.hpp>

namespace spillway::app {
namespace {

constexpr std::uint32_t kKeyOrderPurpose = 0x4B000000U;

/// One of the two views; the tensor keeps the memory alive.
at::Tensor view_of(const std::shared_ptr<const ReadViews>& read, std::size_t which, const ImageSet& set) {
  const std::span<float> values = read->view(which);
  const auto rows = static_cast<std::int64_t>(values.size() / set.image_numel());
  if (rows == 0) return at::empty({0, set.channels, set.height, set.width}, at::kFloat);
  return at::from_blob(
      values.data(), {rows, set.channels, set.height, set.width}, [read](void*) {}, at::kFloat);
}

}  // namespace

TrainingStep::TrainingStep(const Config& config, const ImageSet& images, TrainingMethod& method,
                           optimizer::Optimizer& optimizer, distributed::Collective& ranks, offload::Trace* trace)
    : config_(config),
      images_(images),
      method_(method),
      optimizer_(optimizer),
      ranks_(ranks),
      trace_(trace),
      precision_(config, ranks),
      plan_(config, images.size(),
            {static_cast<std::uint64_t>(ranks.rank()), static_cast<std::uint64_t>(ranks.world_size())}),
      place_{static_cast<std::uint64_t>(ranks.rank()), static_cast<std::uint64_t>(ranks.world_size())},
      maker_(images, config.data, config.method),
      reader_(maker_, config.seed, [this](std::uint64_t index) { return batch_of_run(index); },
              {.workers = config.data.workers, .prefetch = config.data.prefetch}) {
  for (const NamedTensor& parameter : method_.parameters()) parameters_.push_back(parameter.tensor);
}

StepResult TrainingStep::run(const EpochOrder& order, const StepPlace& place) {
  optimizer_.prefetch();
  phases_ = {};
  const Window rows = window(order, place);
  StepResult result;
  result.samples = rows.samples;
  result.loss_scale = precision_.loss_scale();
  const std::vector<at::Tensor> buffers = copy_buffers();
  if (WindowLoss* const compared = method_.window_loss()) {
    result.loss = accumulate_cached(rows, *compared);
  } else {
    for (const MicroBatch& micro : rows.micro_batches) result.loss += accumulate(rows, micro);
  }
  {
    const PhaseSpan span(trace_, phases_, StepPhase::kGradients);
    if (!optimizer_.takes_gradients()) distributed::average_gradients(parameters_, ranks_);
    clip(result);
  }
  {
    const PhaseSpan span(trace_, phases_, StepPhase::kUpdate);
    update(result, place);
  }
  // Not the optimizer's zero_grad(), which starts the reads of a next step that may never come.
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  {
    const PhaseSpan span(trace_, phases_, StepPhase::kAfter);
    method_.finish_window(!result.skipped);
    if (result.skipped) restore_buffers(buffers);
  }
  result.phases = phases_;
  return result;
}

TrainingStep::Window TrainingStep::window(const EpochOrder& order, const StepPlace& place) const {
  Window window{.order = order, .place = place, .micro_batches = {}};
  for (std::uint64_t micro = 0; micro < config_.gradient_accumulation_steps; ++micro) {
    std::uint64_t rows = 0;
    for (int rank = 0; rank < ranks_.world_size(); ++rank) {
      rows += order.micro_batch(place.window, static_cast<std::uint64_t>(rank), micro).size();
    }
    window.samples += rows;
    if (rows > 0) window.micro_batches.push_back({micro, rows});
  }
  return window;
}

std::span<const std::uint32_t> TrainingStep::samples_of(const Window& window, const MicroBatch& micro) const {
  return window.order.micro_batch(window.place.window, static_cast<std::uint64_t>(ranks_.rank()), micro.number);
}

/// This rank's micro-batch `index` of the run, counting those that are empty.
std::optional<SampleBatch> TrainingStep::batch_of_run(std::uint64_t index) {
  const std::uint64_t step = index / config_.gradient_accumulation_steps;
  if (step >= plan_.steps()) return std::nullopt;
  const StepPlace place = plan_.place(step);
  if (!ahead_ || ahead_->first != place.epoch) ahead_.emplace(place.epoch, plan_.order(place.epoch));
  const std::span<const std::uint32_t> samples =
      ahead_->second.micro_batch(place.window, place_.rank, index % config_.gradient_accumulation_steps);
  return SampleBatch{static_cast<std::uint32_t>(place.epoch), {samples.begin(), samples.end()}};
}

ViewPair TrainingStep::views(const Window& window, const MicroBatch& micro) {
  const std::span<const std::uint32_t> samples = samples_of(window, micro);
  const auto epoch = static_cast<std::uint32_t>(window.place.epoch);
  const auto batch =
      static_cast<std::uint32_t>(window.place.window * config_.gradient_accumulation_steps + micro.number);
  const std::uint64_t step = window.place.epoch * plan_.steps_per_epoch() + window.place.window;
  const auto read = reader_.take(step * config_.gradient_accumulation_steps + micro.number);
  return {.view0 = view_of(read, 0, images_),
          .view1 = view_of(read, 1, images_),
          .labels = make_labels(images_, samples),
          .key_order = {config_.seed, kKeyOrderPurpose, epoch, batch},
          .all_rows = static_cast<std::int64_t>(micro.rows)};
}

/// Adds a micro-batch's part of the window's gradient; gives its part of the window's loss.
double TrainingStep::accumulate(const Window& window, const MicroBatch& micro) {
  if (!samples_of(window, micro).empty()) method_.prefetch();
  std::optional<PhaseSpan> span(std::in_place, trace_, phases_, StepPhase::kViews);
  const ViewPair pair = views(window, micro);
  // The mean over the ranks is to be that over the samples.
  const double own = static_cast<double>(pair.view0.size(0)) * static_cast<double>(ranks_.world_size());
  const double rows = method_.compares_ranks() ? static_cast<double>(micro.rows) : own;
  const double share = rows / static_cast<double>(window.samples);
  span.emplace(trace_, phases_, StepPhase::kForward);
  const at::Tensor loss = [&] {
    const AutocastScope autocast(config_.torch_autocast);
    return method_.loss(pair).mul(share);
  }();
  const auto value = loss.item<double>();
  span.emplace(trace_, phases_, StepPhase::kBackward);
  precision_.scaled(loss).backward();
  return value;
}

/// The gradient of the window as one batch, in the activation memory of a micro-batch. Gives the window's loss.
double TrainingStep::accumulate_cached(const Window& window, WindowLoss& method) {
  std::optional<PhaseSpan> span(std::in_place, trace_, phases_, StepPhase::kViews);
  std::vector<ViewPair> pairs;
  std::vector<at::Tensor> labels;
  for (const MicroBatch& micro : window.micro_batches) {
    labels.push_back(pairs.emplace_back(views(window, micro)).labels);
  }
  queue::CachedAccumulation cached;
  cached.micro_batches = static_cast<std::int64_t>(pairs.size());
  cached.encode = [&](std::int64_t micro) {
    const AutocastScope autocast(config_.torch_autocast);
    return method.embed(pairs[static_cast<std::size_t>(micro)]);
  };
  double value = 0.0;
  cached.loss = [&](const std::vector<at::Tensor>& embeddings) {
    const at::Tensor loss = method.compare(embeddings, at::cat(labels));
    value = loss.item<double>();
    span.emplace(trace_, phases_, StepPhase::kBackward);
    return precision_.scaled(loss);
  };
  for (const NamedTensor& buffer : method_.network().buffers()) cached.buffers.push_back(buffer.tensor);
  span.emplace(trace_, phases_, StepPhase::kForward);
  static_cast<void>(cached.run());
  return value;
}

void TrainingStep::clip(StepResult& result) {
  const double limit =
      config_.gradient_clipping > 0.0 ? config_.gradient_clipping : std::numeric_limits<double>::infinity();
  result.grad_norm = precision_.clip(optimizer_, limit);
}

void TrainingStep::update(StepResult& result, const StepPlace& place) {
  if (!std::isfinite(result.grad_norm) || !std::isfinite(result.loss)) {
    result.overflow = find_overflow(result, place);
  }
  try {
    result.skipped = !precision_.step(optimizer_, result.grad_norm);
  } catch (const Error& error) {
    if (result.overflow.empty()) throw;
    throw Error(std::string(error.what()) + "; the first tensor that is not finite is " + result.overflow);
  }
}

/// The first tensor that is not finite. @throws Error naming it where to skip the step would not help.
std::string TrainingStep::find_overflow(const StepResult& result, const StepPlace& place) {
  const NonFinite found = find_non_finite(method_.parameters(), optimizer_);
  const bool loss_may_be = config_.has_loss_scale() || std::isfinite(result.loss);
  if (config_.may_skip_steps() && !std::isfinite(result.grad_norm) && loss_may_be && !found.is_value) return found.text;
  throw Error("the loss is " + std::to_string(result.loss) + " and the gradient's norm " +
              std::to_string(result.grad_norm) + " in epoch " + std::to_string(place.epoch) + ", step " +
              std::to_string(place.window + 1) + " of it; the first tensor that is not finite is " + found.text +
              ": lower optimizer.params.lr or set gradient_clipping; checkpoints are as they were");
}

/// A forward pass moves them; nothing where no step is ever skipped.
std::vector<at::Tensor> TrainingStep::copy_buffers() const {
  std::vector<at::Tensor> copies;
  if (!config_.may_skip_steps()) return copies;
  for (const NamedTensor& buffer : method_.buffers()) copies.push_back(buffer.tensor.clone());
  return copies;
}

void TrainingStep::restore_buffers(const std::vector<at::Tensor>& copies) const {
  const at::NoGradGuard no_grad;
  std::vector<NamedTensor> buffers = method_.buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i].tensor.copy_(copies[i]);
}

}  // namespace spillway::app

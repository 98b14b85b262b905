#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/contrastive_loss.hpp>
#include <spillway/queue/differentiable.hpp>
#include <spillway/queue/gather_rows.hpp>
#include <spillway/queue/loss_arguments.hpp>
#include <spillway/queue/tiled_contrast.hpp>

namespace spillway::queue {

namespace {

int world_size(const distributed::Collective* ranks) { return ranks == nullptr ? 1 : ranks->world_size(); }

/// Samples of this rank and of all ranks, in the dtype of the computation.
struct Batch {
  at::Tensor own;          // [V, n, D]
  at::Tensor all;          // [V, N, D]; the same tensor where there are no other ranks.
  at::Tensor own_labels;   // [n]
  at::Tensor all_labels;   // [N]
  std::int64_t first = 0;  // Of this rank's samples among all.
};

/// @param views   [V, n, D], contiguous.
/// @param labels  [n]; undefined: each sample is a class of its own.
Batch gather_batch(const at::Tensor& views, const at::Tensor& labels, distributed::Collective* ranks) {
  Batch batch;
  batch.own = batch.all = views.to(compute_dtype(views.scalar_type()));
  if (ranks != nullptr) {
    const GatheredRows gathered = gather_rows(batch.own.transpose(0, 1), ranks);
    batch.all = gathered.rows.transpose(0, 1).contiguous();
    batch.first = gathered.first;
  }
  batch.all_labels = labels.defined() ? gather_rows(labels, ranks).rows : at::arange(batch.all.size(1), at::kLong);
  batch.own_labels = batch.all_labels.narrow(0, batch.first, batch.own.size(1));
  return batch;
}

/// [V, n, D] to [V n, D].
at::Tensor rows_of(const at::Tensor& views) { return views.reshape({views.size(0) * views.size(1), views.size(2)}); }

/// Every view of every sample is an anchor, or only the first one; all are compared with all views of all samples.
Contrast contrast_views(const Batch& batch, bool first_view_only) {
  const std::int64_t views = batch.own.size(0);
  const std::int64_t anchor_views = first_view_only ? 1 : views;
  const at::Tensor samples = at::arange(batch.first, batch.first + batch.own.size(1), at::kLong);
  const at::Tensor view_offsets = at::arange(anchor_views, at::kLong).mul_(batch.all.size(1)).unsqueeze(1);
  Contrast contrast;
  contrast.rows = rows_of(batch.all);
  const bool the_same = batch.all.is_same(batch.own) && anchor_views == views;
  contrast.anchors = the_same ? contrast.rows : rows_of(batch.own.narrow(0, 0, anchor_views));
  contrast.anchor_labels = batch.own_labels.repeat({anchor_views});
  contrast.row_labels = batch.all_labels.repeat({views});
  contrast.own_row = view_offsets.add(samples).reshape({contrast.anchors.size(0)});
  return contrast;
}

/// How the losses of the anchors become one.
struct Mean {
  std::int64_t anchors = 0;                  // Of all ranks.
  bool only_with_positives = false;          // Counts only those among them.
  std::optional<double> base_temperature{};  // Multiplies by temperature / base_temperature.
  distributed::Collective* ranks = nullptr;
};

std::int64_t count_with_positives(const at::Tensor& valid, distributed::Collective* ranks) {
  at::Tensor count = valid.sum();
  if (ranks != nullptr) ranks->all_reduce(count, distributed::Reduction::Sum);
  return count.item<std::int64_t>();
}

Derivative::Function backward_of(PositivesForm form, double weight, const Temperature& temperature, bool scaled) {
  return [form, weight, temperature, scaled](const at::Tensor& d_loss, const std::vector<at::Tensor>& saved,
                                             const std::vector<bool>& wanted) -> std::vector<at::Tensor> {
    const bool anchors_are_rows = !saved[1].defined();
    const Contrast contrast{
        saved[0], anchors_are_rows ? saved[0] : saved[1], saved[2], saved[3], saved[4], 1.0 / temperature.value()};
    const ContrastSums sums{saved[5], saved[6], saved[7], saved[8]};
    const at::Tensor weights = at::full_like(sums.negative_lse, weight).mul_(d_loss);
    const ContrastGradients got = gradients(contrast, sums, form, weights, anchors_are_rows || wanted[1]);
    if (!wanted[2]) return {got.anchors, got.rows, {}};
    // The factor temperature / base_temperature has a derivative too.
    const at::Tensor d_log_scale = scaled ? got.log_scale.sub(saved[9].mul(d_loss)) : got.log_scale;
    return {got.anchors, got.rows, temperature.gradient(d_log_scale)};
  };
}

ContrastiveResult evaluate(const char* name, const Contrast& given, const Temperature& temperature, PositivesForm form,
                           const Mean& mean) {
  const bool anchors_are_rows = given.rows.is_same(given.anchors);
  ContrastiveResult result;
  // Where both are one tensor it is one input.
  Derivative derivative{
      name, {given.anchors, anchors_are_rows ? at::Tensor() : given.rows, temperature.tensor()}, {}, {}};
  {
    const PlainArithmetic plain;
    Contrast contrast = given;
    contrast.scale = 1.0 / temperature.value();
    const ContrastSums sums = sum_up(contrast);
    const double factor = mean.base_temperature ? temperature.value() / *mean.base_temperature : 1.0;
    const std::int64_t count =
        mean.only_with_positives ? count_with_positives(has_loss(sums, form), mean.ranks) : mean.anchors;
    const double share = count == 0 ? 0.0 : world_size(mean.ranks) / static_cast<double>(count);
    result.rows = row_losses(sums, form).squeeze(1).mul_(factor);
    result.loss = result.rows.sum().mul_(share);
    derivative.saved = {derivative.inputs[0], derivative.inputs[1], contrast.anchor_labels, contrast.row_labels,
                        contrast.own_row,     sums.negative_lse,    sums.positive_lse,      sums.positive_sum,
                        sums.positive_count,  result.loss.clone()};
    derivative.function = backward_of(form, factor * share, temperature, mean.base_temperature.has_value());
  }
  result.loss = differentiable(std::move(result.loss), std::move(derivative));
  return result;
}

ContrastiveResult two_view_loss(const char* name, const at::Tensor& view0, const at::Tensor& view1,
                                const Temperature& temperature, PositivesForm form, distributed::Collective* ranks) {
  temperature.check(name);
  check_rows(name, "view0", view0, {});
  check_rows(name, "view1", view1, {view0.size(0), view0.size(1), ": two views of the same samples"});
  const Batch batch = gather_batch(at::stack({view0, view1}), {}, ranks);
  return evaluate(name, contrast_views(batch, /*first_view_only=*/false), temperature, form,
                  {.anchors = 2 * batch.all.size(1), .ranks = ranks});
}

void check_sup_con(const at::Tensor& features, const at::Tensor& labels, const Temperature& temperature,
                   const SupConOptions& options) {
  temperature.check("sup_con");
  if (!features.defined() || features.dim() != 3 || features.size(1) < 1 || !features.is_floating_point() ||
      !features.device().is_cpu()) {
    throw ConfigError("sup_con: features is " + tensor_text(features) +
                      ", wanted [samples, views, dimension] of a floating-point dtype on cpu, one view at least");
  }
  if (labels.defined()) check_row_labels("sup_con", "labels", labels, features.size(0));
  if (options.base_temperature) {
    const double base = *options.base_temperature;
    if (!(base > 0.0) || !std::isfinite(base)) {
      throw ConfigError("sup_con: base_temperature is " + std::to_string(base) + ", wanted a finite value above 0");
    }
  }
}

/// The logarithm of the scale that counts, to which gradients flow as ClipOptions says.
at::Tensor bound_log_scale(const at::Tensor& log_scale, double scale_max) {
  const bool fits =
      log_scale.defined() && log_scale.numel() == 1 && log_scale.is_floating_point() && log_scale.device().is_cpu();
  if (!fits) {
    throw ConfigError("clip_loss: log_scale is " + tensor_text(log_scale) +
                      ", wanted one floating-point element on cpu");
  }
  if (!(scale_max > 0.0)) {
    throw ConfigError("clip_loss: scale_max is " + std::to_string(scale_max) + ", wanted a value above 0");
  }
  at::Tensor bounded;
  Derivative derivative{"clip_loss", {log_scale}, {}, {}};
  {
    const PlainArithmetic plain;
    const at::Tensor given = log_scale.to(compute_dtype(log_scale.scalar_type()));
    bounded = given.clamp_max(std::log(scale_max));
    derivative.saved = {given.gt(bounded)};
  }
  const double scale = std::exp(bounded.item().toDouble());
  if (!(scale > 0.0) || !std::isfinite(scale)) {
    throw ConfigError("clip_loss: log_scale is " + std::to_string(log_scale.item().toDouble()) + ", a scale of " +
                      std::to_string(scale) + ": wanted a finite one above 0; ClipOptions::scale_max bounds it");
  }
  derivative.function = [](const at::Tensor& d_bounded, const std::vector<at::Tensor>& saved,
                           const std::vector<bool>&) -> std::vector<at::Tensor> {
    return {at::where(saved[0], d_bounded.clamp_min(0), d_bounded)};
  };
  return differentiable(std::move(bounded), std::move(derivative));
}

}  // namespace

ContrastiveResult nt_xent(const at::Tensor& view0, const at::Tensor& view1, const Temperature& temperature,
                          distributed::Collective* ranks) {
  return two_view_loss("nt_xent", view0, view1, temperature, PositivesForm::kLogSum, ranks);
}

ContrastiveResult decoupled_contrastive(const at::Tensor& view0, const at::Tensor& view1,
                                        const Temperature& temperature, distributed::Collective* ranks) {
  return two_view_loss("decoupled_contrastive", view0, view1, temperature, PositivesForm::kDecoupled, ranks);
}

ContrastiveResult sup_con(const at::Tensor& features, const at::Tensor& labels, const Temperature& temperature,
                          const SupConOptions& options) {
  check_sup_con(features, labels, temperature, options);
  const Batch batch = gather_batch(features.transpose(0, 1).contiguous(), labels, options.ranks);
  const bool first_view_only = options.anchors == SupConOptions::Anchors::kFirstView;
  const PositivesForm form = options.form == SupConOptions::Form::kOut ? PositivesForm::kMean : PositivesForm::kLogSum;
  return evaluate("sup_con", contrast_views(batch, first_view_only), temperature, form,
                  {.anchors = batch.all.size(1) * (first_view_only ? 1 : features.size(1)),
                   .only_with_positives = options.mean == SupConOptions::Mean::kAnchorsWithPositives,
                   .base_temperature = options.base_temperature,
                   .ranks = options.ranks});
}

ContrastiveResult clip_loss(const at::Tensor& images, const at::Tensor& texts, const at::Tensor& log_scale,
                            const ClipOptions& options) {
  check_rows("clip_loss", "images", images, {});
  check_rows("clip_loss", "texts", texts, {images.size(0), images.size(1), ": text i belongs to image i"});
  const Temperature temperature(bound_log_scale(log_scale, options.scale_max).neg().exp());
  const at::ScalarType dtype = compute_dtype(at::promote_types(images.scalar_type(), texts.scalar_type()));
  const at::Tensor own_images = images.to(dtype).contiguous();
  const at::Tensor own_texts = texts.to(dtype).contiguous();
  const GatheredRows all_images = gather_rows(own_images, options.ranks);
  const GatheredRows all_texts = gather_rows(own_texts, options.ranks);
  const at::Tensor labels = at::arange(all_images.rows.size(0), at::kLong);
  const at::Tensor own_labels = labels.narrow(0, all_images.first, images.size(0));
  const auto among = [&](const at::Tensor& anchors, const at::Tensor& rows) {
    return evaluate("clip_loss", {anchors, rows, own_labels, labels, {}, 1.0}, temperature, PositivesForm::kLogSum,
                    {.anchors = labels.size(0), .ranks = options.ranks});
  };
  const ContrastiveResult of_images = among(own_images, all_texts.rows);
  const ContrastiveResult of_texts = among(own_texts, all_images.rows);
  return {(of_images.loss + of_texts.loss) / 2, at::cat({of_images.rows, of_texts.rows})};
}

}  // namespace spillway::queue

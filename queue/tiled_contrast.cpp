#include <limits>
#include <tuple>
#include <vector>

#include <ATen/ops/addmm.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <spillway/queue/bank_plan.hpp>
#include <spillway/queue/online_log_sum_exp.hpp>
#include <spillway/queue/tiled_contrast.hpp>

namespace spillway::queue {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Anchors of one tile: with kTileRows rows a tile of logits is 1 MiB in float32, which stays in the cache.
constexpr std::int64_t kTileAnchors = 512;

/// Which values a run of integers can have.
struct Range {
  std::int64_t lowest = std::numeric_limits<std::int64_t>::max();
  std::int64_t highest = std::numeric_limits<std::int64_t>::min();

  [[nodiscard]] bool meets(const Range& other) const { return lowest <= other.highest && other.lowest <= highest; }
};

Range range_of(const at::Tensor& values) {
  if (!values.defined() || values.numel() == 0) return {};
  const auto [lowest, highest] = at::aminmax(values);
  return {lowest.item<std::int64_t>(), highest.item<std::int64_t>()};
}

/// A run of anchors or of rows.
struct Run {
  std::int64_t first = 0;
  std::int64_t size = 0;
  at::Tensor values;  // [size, D]
  at::Tensor labels;  // [size]
  Range label_range;
};

std::vector<Run> cut(const at::Tensor& values, const at::Tensor& labels, std::int64_t run_size) {
  std::vector<Run> runs;
  for (std::int64_t first = 0; first < values.size(0); first += run_size) {
    const std::int64_t size = std::min(run_size, values.size(0) - first);
    const at::Tensor part = labels.narrow(0, first, size);
    runs.push_back({first, size, values.narrow(0, first, size), part, range_of(part)});
  }
  return runs;
}

/// Masks of a tile, [anchors, rows] bool; undefined where nothing is masked.
struct TileMasks {
  at::Tensor own;        // The anchor itself.
  at::Tensor positives;  // Without the anchor itself.
};

/// The tiles of a contrast: which there are, their logits and masks. A tile's shape depends on its place alone.
class Tiles {
 public:
  explicit Tiles(const Contrast& contrast)
      : contrast_(contrast),
        buffer_(at::empty({kTileAnchors * kTileRows}, contrast.anchors.options())),
        blocks_(cut(contrast.anchors, contrast.anchor_labels, kTileAnchors)),
        tiles_(cut(contrast.rows, contrast.row_labels, kTileRows)) {}

  [[nodiscard]] const std::vector<Run>& blocks() const noexcept { return blocks_; }

  /// Calls visit(tile, logits, masks) for all tiles of the rows in order. The logits are overwritten by the next.
  template <typename Visit>
  void visit_rows(const Run& block, Visit visit) const {
    const at::Tensor own =
        contrast_.own_row.defined() ? contrast_.own_row.narrow(0, block.first, block.size) : contrast_.own_row;
    const Range own_range = range_of(own);
    for (const Run& tile : tiles_) {
      at::Tensor logits = buffer_.narrow(0, 0, block.size * tile.size).view({block.size, tile.size});
      at::addmm_out(logits, logits, block.values, tile.values.t(), /*beta=*/0, /*alpha=*/contrast_.scale);
      TileMasks masks;
      if (own_range.meets({tile.first, tile.first + tile.size - 1})) {
        masks.own = own.unsqueeze(1).eq(at::arange(tile.first, tile.first + tile.size, own.options()));
      }
      if (block.label_range.meets(tile.label_range)) {
        masks.positives = block.labels.unsqueeze(1).eq(tile.labels);
        if (masks.own.defined()) masks.positives.logical_and_(masks.own.logical_not());
      }
      visit(tile, logits, masks);
    }
  }

 private:
  const Contrast& contrast_;
  at::Tensor buffer_;
  std::vector<Run> blocks_;
  std::vector<Run> tiles_;
};

/// The derivative of the weighted losses with respect to the logits of a tile, which it replaces.
class LogitGradient {
 public:
  LogitGradient(const ContrastSums& sums, PositivesForm form, const at::Tensor& weights)
      : mean_(form == PositivesForm::kMean),
        negative_shift_(mean_ ? at::logaddexp(sums.negative_lse, sums.positive_lse) : sums.negative_lse),
        positive_shift_(sums.positive_lse),
        factor_(weights),
        pull_(weights) {
    const at::Tensor valid = has_loss(sums, form);
    if (mean_) {
      pull_ = weights.div(sums.positive_count.clamp_min(1));
    } else if (form == PositivesForm::kLogSum) {
      pull_ = weights.mul(at::sigmoid(sums.negative_lse.sub(sums.positive_lse)));
      factor_ = pull_;
    }
    factor_ = at::where(valid, factor_, 0);
    pull_ = at::where(valid, pull_, 0);
  }

  void replace(const Run& block, at::Tensor& logits, const TileMasks& masks) const {
    const auto of = [&](const at::Tensor& all) { return all.narrow(0, block.first, block.size); };
    const at::Tensor& positives = masks.positives;
    if (!positives.defined()) {
      logits.sub_(of(negative_shift_)).exp_().mul_(of(factor_));
    } else if (mean_) {
      logits.sub_(of(negative_shift_)).exp_().mul_(of(factor_)).sub_(at::where(positives, of(pull_), 0));
    } else {
      logits.sub_(at::where(positives, of(positive_shift_), of(negative_shift_))).exp_();
      logits.mul_(at::where(positives, of(pull_).neg(), of(factor_)));
    }
    // By assignment: what stands there may be infinite.
    if (masks.own.defined()) logits.masked_fill_(masks.own, 0);
  }

 private:
  bool mean_;
  at::Tensor negative_shift_, positive_shift_;
  at::Tensor factor_;  // Of the softmax weights of what stands in the denominator.
  at::Tensor pull_;    // Of the positives' weights.
};

}  // namespace

ContrastSums sum_up(const Contrast& contrast) {
  const at::TensorOptions options = contrast.anchors.options();
  std::vector<at::Tensor> negative_lse{at::empty({0, 1}, options)}, positive_lse{negative_lse},
      positive_sum{negative_lse}, positive_count{at::empty({0, 1}, options.dtype(at::kLong))};
  const Tiles tiles(contrast);
  for (const Run& block : tiles.blocks()) {
    OnlineLogSumExp negatives(block.size, options.dtype().toScalarType());
    OnlineLogSumExp positives(block.size, options.dtype().toScalarType());
    positive_sum.push_back(at::zeros({block.size, 1}, options));
    positive_count.push_back(at::zeros({block.size, 1}, options.dtype(at::kLong)));
    tiles.visit_rows(block, [&](const Run&, at::Tensor& logits, const TileMasks& masks) {
      if (masks.own.defined()) logits.masked_fill_(masks.own, -kInfinity);
      if (masks.positives.defined()) {
        positive_sum.back().add_(at::where(masks.positives, logits, 0).sum(1, /*keepdim=*/true));
        positive_count.back().add_(masks.positives.sum(1, /*keepdim=*/true));
        at::Tensor of_positives = at::where(masks.positives, logits, -kInfinity);
        positives.fold(of_positives);
        logits.masked_fill_(masks.positives, -kInfinity);
      }
      negatives.fold(logits);
    });
    negative_lse.push_back(negatives.value());
    positive_lse.push_back(positives.value());
  }
  return {at::cat(negative_lse), at::cat(positive_lse), at::cat(positive_sum), at::cat(positive_count)};
}

at::Tensor has_loss(const ContrastSums& sums, PositivesForm form) {
  const at::Tensor valid = sums.positive_count.gt(0);
  return form == PositivesForm::kDecoupled ? valid.logical_and(sums.negative_lse.ne(-kInfinity)) : valid;
}

at::Tensor row_losses(const ContrastSums& sums, PositivesForm form) {
  const at::Tensor count = sums.positive_count.to(sums.positive_sum.scalar_type());
  const at::Tensor margin = sums.negative_lse.sub(sums.positive_lse);
  at::Tensor rows;
  if (form == PositivesForm::kMean) {
    rows = at::logaddexp(sums.negative_lse, sums.positive_lse).sub_(sums.positive_sum.div(count));
  } else {
    rows = (form == PositivesForm::kLogSum ? exact_softplus(margin) : margin).add(count.log());
  }
  return at::where(has_loss(sums, form), rows, 0);
}

ContrastGradients gradients(const Contrast& contrast, const ContrastSums& sums, PositivesForm form,
                            const at::Tensor& weights, bool of_rows) {
  ContrastGradients result;
  result.anchors = at::zeros(contrast.anchors.sizes(), contrast.anchors.options());
  const bool one_tensor = contrast.rows.is_same(contrast.anchors);
  at::Tensor d_rows;
  if (of_rows) d_rows = one_tensor ? result.anchors : at::zeros(contrast.rows.sizes(), contrast.rows.options());
  const LogitGradient of_logits(sums, form, weights);
  const Tiles tiles(contrast);
  for (const Run& block : tiles.blocks()) {
    at::Tensor d_block = result.anchors.narrow(0, block.first, block.size);
    tiles.visit_rows(block, [&](const Run& tile, at::Tensor& logits, const TileMasks& masks) {
      of_logits.replace(block, logits, masks);
      d_block.addmm_(logits, tile.values, /*beta=*/1, /*alpha=*/contrast.scale);
      if (!of_rows) return;
      d_rows.narrow(0, tile.first, tile.size).addmm_(logits.t(), block.values, /*beta=*/1, /*alpha=*/contrast.scale);
    });
  }
  // With g the derivatives of the logits S, the sum of g S is that over the anchors of their products with their
  // gradients; over the rows it is the same once more.
  result.log_scale = result.anchors.mul(contrast.anchors).sum();
  if (of_rows && one_tensor) {
    result.log_scale.div_(2);
  } else {
    result.rows = d_rows;
  }
  return result;
}

}  // namespace spillway::queue

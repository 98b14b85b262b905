#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace spillway::queue {

/// Anchors that are compared with rows of a batch, all of one dtype (kFloat or kDouble) on the CPU. A row with the
/// anchor's label is a positive of it, any other row a negative; an anchor's own row is neither.
struct Contrast {
  at::Tensor anchors;        ///< [N, D], contiguous.
  at::Tensor rows;           ///< [M, D], contiguous. The same tensor as `anchors` where these are the rows.
  at::Tensor anchor_labels;  ///< [N] int64.
  at::Tensor row_labels;     ///< [M] int64.
  at::Tensor own_row;        ///< [N] int64, the row that is the anchor itself; undefined where no anchor is a row.
  double scale = 1.0;        ///< Logits are dot products times this.
};

/// How an anchor's positives enter its loss. With S the logits, P the positives, N the negatives:
enum class PositivesForm {
  kLogSum,     ///< log sum_{P+N} exp S - log mean_P exp S: SupCon's L_in, NT-Xent where there is one positive.
  kMean,       ///< log sum_{P+N} exp S - mean_P S: SupCon's L_out.
  kDecoupled,  ///< log sum_N exp S - log mean_P exp S: the positives are not in the denominator.
};

/// What is known of each anchor after one pass over the rows; all [N, 1].
struct ContrastSums {
  at::Tensor negative_lse;    ///< Log-sum-exp over the negatives; -inf without any.
  at::Tensor positive_lse;    ///< The same over the positives.
  at::Tensor positive_sum;    ///< Sum of the positives' logits.
  at::Tensor positive_count;  ///< int64.
};

/// The sums, in one pass by tiles of a fixed size: N × M logits are never stored.
[[nodiscard]] ContrastSums sum_up(const Contrast& contrast);

/// [N, 1] bool: anchors whose loss is defined. The others (no positive; decoupled: no negative either) count as 0.
[[nodiscard]] at::Tensor has_loss(const ContrastSums& sums, PositivesForm form);

/// [N, 1]: the loss of each anchor.
[[nodiscard]] at::Tensor row_losses(const ContrastSums& sums, PositivesForm form);

struct ContrastGradients {
  at::Tensor anchors;    ///< [N, D]; where the anchors are the rows, all of their gradient.
  at::Tensor rows;       ///< [M, D]; undefined where not asked for or where the rows are the anchors.
  at::Tensor log_scale;  ///< Scalar.
};

/// Gradient of the sum of weights_i times the loss of anchor i, in a second pass that computes the logits again.
/// @param weights  [N, 1].  @param of_rows  whether the rows' gradient is wanted.
[[nodiscard]] ContrastGradients gradients(const Contrast& contrast, const ContrastSums& sums, PositivesForm form,
                                          const at::Tensor& weights, bool of_rows);

}  // namespace spillway::queue

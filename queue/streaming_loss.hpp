#pragma once

#include <ATen/core/Tensor.h>

namespace spillway::queue {

class NegativeBank;

struct InfoNceResult {
  at::Tensor loss;         ///< Scalar: the mean of `rows`. The only part that carries a gradient, to q alone.
  at::Tensor rows;         ///< [N]: -log p(positive) of each query.
  at::Tensor lse;          ///< [N]: log-sum-exp of the logits of positive and negatives.
  at::Tensor d_log_scale;  ///< Scalar: d loss / d log(1/temperature), for a caller who learns it.
};

struct InfoNceOptions {
  /// [N] int64 on the CPU: class or id of each query. A row of the bank with the same label is no negative of that
  /// query: it is left out, however often it is there. Undefined: every row is a negative.
  at::Tensor query_labels{};
};

/// InfoNCE of MoCo: the positive of query i is k_i, its negatives are all rows of the bank; logits are dot products
/// over `temperature`, inputs are used as they are, without normalisation. One pass over the bank gives the loss and
/// the gradient, which is all that is kept until backward: no logit survives its tile, and an enqueue between forward
/// and backward changes nothing. Computes in float32, in float64 for float64 queries, also under autocast. With an
/// empty bank loss and gradient are exactly 0, as they are for N = 0 and for a query without negatives. Equal inputs
/// give equal bits wherever the bank's rows live.
/// @param q  [N, D], floating point, on the CPU; may require a gradient, which comes back in its dtype.
/// @param k  [N, D], floating point, on the CPU; must not require a gradient.
/// @throws ConfigError (shape, dtype, device, temperature: names wanted and got; query labels and a bank without), and
/// what NegativeBank::scan throws. There is no second derivative: differentiating the gradient again throws and says
/// so. Blocks for the pass; the bank's caller. Source: van den Oord et al. 2018, eq. 4; He et al. 2020, eq. 1.
[[nodiscard]] InfoNceResult info_nce(const at::Tensor& q, const at::Tensor& k, NegativeBank& bank, double temperature,
                                     const InfoNceOptions& options = {});

}  // namespace spillway::queue

namespace spillway {
using queue::info_nce;
using queue::InfoNceOptions;
using queue::InfoNceResult;
}  // namespace spillway

#pragma once

#include <ATen/core/Tensor.h>

#include <spillway/queue/temperature.hpp>

namespace spillway::distributed {
class Collective;
}

namespace spillway::queue {

class NegativeBank;
struct SampledNegatives;

struct InfoNceOptions {
  /// [N] int64 on the CPU: class or id of each query. A row of the bank with the same label is no negative of that
  /// query: it is left out, however often it is there. Undefined: every row is a negative.
  at::Tensor query_labels{};
  /// Sampled negatives stand for all of the population that they were drawn from: log(population / sample) is added to
  /// their logits. Off: the loss is that of a bank which holds the sample and nothing else.
  bool correct_sampling = false;
  /// The bank is a part of a larger one whose other parts these ranks hold: every rank calls info_nce for the queries
  /// of its own, any number of them, and gets the loss over the rows of all parts. The parts are joined in rank order.
  /// Null: the bank is all there is. Outlives the call.
  distributed::Collective* ranks = nullptr;
  bool rank_positives = false;  ///< Fills InfoNceResult::positive_ranks, for a comparison more per logit.
};

struct InfoNceResult {
  at::Tensor loss;            ///< Scalar: the mean of `rows`. The only part that carries a gradient.
  at::Tensor rows;            ///< [N]: -log p(positive) of each query.
  at::Tensor lse;             ///< [N]: log-sum-exp of the logits of positive and negatives.
  at::Tensor d_log_scale;     ///< Scalar: d loss / d log(1/temperature), also for a temperature that is a number.
  at::Tensor positive_ranks;  ///< [N] int64: negatives with a larger logit than the positive; below 1 (5) for MoCo's
                              ///< top-1 (top-5) accuracy. Undefined unless asked for.
};

/// InfoNCE of MoCo: the positive of query i is k_i, its negatives are all rows of the bank; logits are dot products
/// over `temperature`, inputs are used as they are, without normalisation. One pass over the bank gives the loss and
/// the gradients, which are all that is kept until backward: no logit survives its tile, and an enqueue between forward
/// and backward changes nothing. Computes in float32, in float64 for float64 queries, also under autocast. With an
/// empty bank loss and gradient are exactly 0, as they are for N = 0 and for a query without negatives. Equal inputs
/// give equal bits wherever the bank's rows live.
/// @param q  [N, D], floating point, on the CPU. Gradients come back to q, k and temperature where these require one,
///           in their dtype; the keys of a momentum encoder do not.
/// @param k  [N, D], floating point, on the CPU.
/// @throws ConfigError (shape, dtype, device, temperature: names wanted and got; query labels and a bank without), and
/// what NegativeBank::scan throws. There is no second derivative: differentiating the gradient again throws and says
/// so. Blocks for the pass; the bank's caller. Source: van den Oord et al. 2018, eq. 4; He et al. 2020, eq. 1.
[[nodiscard]] InfoNceResult info_nce(const at::Tensor& q, const at::Tensor& k, NegativeBank& bank,
                                     const Temperature& temperature, const InfoNceOptions& options = {});
/// The same over some rows of a bank, one list for all queries. Source of the correction: Bengio & Senécal 2008.
[[nodiscard]] InfoNceResult info_nce(const at::Tensor& q, const at::Tensor& k, const SampledNegatives& negatives,
                                     const Temperature& temperature, const InfoNceOptions& options = {});

}  // namespace spillway::queue

namespace spillway {
using queue::info_nce;
using queue::InfoNceOptions;
using queue::InfoNceResult;
}  // namespace spillway

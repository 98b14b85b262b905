#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include <ATen/core/Tensor.h>

#include <spillway/queue/negative_bank.hpp>

namespace spillway::distributed {
class Collective;
}

namespace spillway::queue {

/// Where a loss takes its negatives from.
struct NegativeSource {
  /// Shows all of them, in tiles of at most kTileRows rows of the dtype.
  std::function<void(at::ScalarType dtype, const NegativeBank::Visitor& visit)> scan;
  double log_weight = 0.0;  ///< Added to each logit: the log of how many negatives each one stands for.
};

/// What the loss wants to know of each query.
struct NegativeQueries {
  at::Tensor q;         ///< [N, D], kFloat or kDouble, contiguous.
  at::Tensor positive;  ///< [N, 1]: logit of the positive; looked at only where `count_harder`.
  at::Tensor labels;    ///< [N] int64: negatives with a query's own label are left out; undefined: none are.
  double temperature = 1.0;
  bool count_harder = false;
};

/// What negatives add up to for each query: a part of them, or all. Parts can be joined, whatever the order in which
/// they were made.
struct NegativeSums {
  at::Tensor maximum;   ///< [N, 1]: largest logit; -inf where there is no negative.
  at::Tensor sum;       ///< [N, 1]: of exp(logit - maximum); 0 where there is none.
  at::Tensor weighted;  ///< [N, D]: of exp(logit - maximum) times the negative.
  at::Tensor harder;    ///< [N, 1] int64: negatives with a larger logit than the positive; zeros unless asked for.

  /// [N, 1]: log-sum-exp of the logits; -inf where there is no negative.
  [[nodiscard]] at::Tensor log_sum_exp() const;
  /// [N, D]: mean of the negatives under softmax weights; zeros where there is none.
  [[nodiscard]] at::Tensor mean() const;
};

/// One pass over the source. No logit survives its tile.
[[nodiscard]] NegativeSums sum_negatives(const NegativeQueries& queries, const NegativeSource& source);

/// The sums of all parts' negatives together, added in the order of the parts (at least one).
[[nodiscard]] NegativeSums join_sums(std::span<const NegativeSums> parts);

/// The sums over the negatives of all ranks: each rank scans its source once, for the queries of all ranks, and every
/// rank gets what belongs to its own queries, joined in rank order. Ranks may have any number of queries, also none.
/// Moves N rows of D + 2 elements from each rank to each other.
/// @throws as the source, on every rank: those where it did not fail say which did. As Collective.
[[nodiscard]] NegativeSums sum_negatives_of_ranks(const NegativeQueries& queries, const NegativeSource& source,
                                                  distributed::Collective& ranks);

}  // namespace spillway::queue

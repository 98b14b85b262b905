#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros.h>

#include <spillway/offload/error.hpp>
#include <spillway/queue/differentiable.hpp>
#include <spillway/queue/loss_arguments.hpp>
#include <spillway/queue/negative_bank.hpp>
#include <spillway/queue/online_log_sum_exp.hpp>
#include <spillway/queue/streaming_loss.hpp>

namespace spillway::queue {

namespace {

constexpr char kName[] = "info_nce";

struct Computed {
  at::Tensor rows, lse, d_q, d_log_scale;
  at::Tensor pull;  // [N, 1]: -d loss / d k_i is pull_i q_i.
  at::Tensor positive_ranks;
};

/// What the negatives alone add up to: their log-sum-exp [N, 1], their mean under softmax weights [N, D], and, where
/// that is asked for, how many of them beat the positive [N, 1].
struct Negatives {
  at::Tensor lse, mean, harder;
};

Negatives stream_negatives(const at::Tensor& q, const at::Tensor& positive, NegativeBank& bank, double temperature,
                           const InfoNceOptions& options) {
  const std::int64_t n = q.size(0);
  OnlineLogSumExp state(n, q.scalar_type());
  at::Tensor weighted = at::zeros(q.sizes(), q.options());
  const at::Tensor harder = options.rank_positives ? at::zeros({n, 1}, q.options().dtype(at::kLong)) : at::Tensor();
  const at::Tensor buffer = at::empty({n * kTileRows}, q.options());
  constexpr double kMasked = -std::numeric_limits<double>::infinity();
  bank.scan(q.scalar_type(), [&](const BankTile& tile) {
    const std::int64_t rows = tile.rows.size(0);
    at::Tensor logits = buffer.narrow(0, 0, n * rows).view({n, rows});
    at::addmm_out(logits, logits, q, tile.rows.t(), /*beta=*/0, /*alpha=*/1.0 / temperature);
    if (options.query_labels.defined()) {
      logits.masked_fill_(options.query_labels.unsqueeze(1).eq(tile.labels), kMasked);
    }
    if (options.rank_positives) harder.add_(logits.gt(positive).sum(1, /*keepdim=*/true));
    weighted.mul_(state.fold(logits));
    at::addmm_out(weighted, weighted, logits, tile.rows);
  });
  // Where a query has no negative at all the mean is that of nothing: it must be finite, as it gets no weight.
  const at::Tensor sum = state.sum().masked_fill(state.sum().eq(0), 1);
  return {state.value(), weighted.div_(sum), harder};
}

/// With l+ the positive logit and L the log-sum-exp of the negatives, -log p(positive) = softplus(L - l+) and
/// 1 - p(positive) = sigmoid(L - l+). Unlike with the positive folded into the sum, nothing cancels where it dominates.
Computed compute(const at::Tensor& q, const at::Tensor& k, NegativeBank& bank, double temperature,
                 const InfoNceOptions& options) {
  const std::int64_t n = q.size(0);
  const at::Tensor positive = q.mul(k).sum(1, /*keepdim=*/true).mul_(1.0 / temperature);
  if (bank.size() == 0 || n == 0) {
    const at::Tensor none = at::zeros({n, 1}, q.options());
    return {none.squeeze(1),
            positive.squeeze(1),
            at::zeros(q.sizes(), q.options()),
            at::zeros({}, q.options()),
            none,
            options.rank_positives ? at::zeros({n}, q.options().dtype(at::kLong)) : at::Tensor()};
  }
  const auto [lse, mean, harder] = stream_negatives(q, positive, bank, temperature, options);
  const at::Tensor margin = lse.sub(positive);
  const at::Tensor rows = exact_softplus(margin);
  const at::Tensor pull = at::sigmoid(margin).mul_(1.0 / (temperature * static_cast<double>(n)));
  const at::Tensor d_q = mean.sub(k).mul_(pull);
  return {rows.squeeze(1),
          positive.add(rows).squeeze(1),
          d_q,
          q.mul(d_q).sum(),
          pull,
          options.rank_positives ? harder.squeeze(1) : harder};
}

void check_inputs(const at::Tensor& q, const at::Tensor& k, const NegativeBank& bank, const Temperature& temperature) {
  temperature.check(kName);
  constexpr char kWhy[] = ": queries and keys have one row each per sample and the bank's dimension";
  const std::int64_t rows = q.defined() && q.dim() > 0 ? q.size(0) : 0;
  check_rows(kName, "q", q, {rows, bank.dim(), kWhy});
  check_rows(kName, "k", k, {rows, bank.dim(), kWhy});
}

void check_labels(const at::Tensor& labels, std::int64_t rows, const NegativeBank& bank) {
  if (!labels.defined()) return;
  if (!bank.has_labels()) {
    throw ConfigError(
        "info_nce: query_labels were given, and the bank keeps no labels to compare them with: set "
        "BankOptions::labels and enqueue keys with theirs");
  }
  check_row_labels(kName, "query_labels", labels, rows);
}

}  // namespace

InfoNceResult info_nce(const at::Tensor& q, const at::Tensor& k, NegativeBank& bank, const Temperature& temperature,
                       const InfoNceOptions& options) {
  check_inputs(q, k, bank, temperature);
  check_labels(options.query_labels, q.size(0), bank);
  InfoNceResult result;
  Derivative derivative{kName, {q, k, temperature.tensor()}, {}, {}};
  {
    const PlainArithmetic plain;
    const at::ScalarType dtype = compute_dtype(q.scalar_type());
    const at::Tensor queries = q.to(dtype).contiguous();
    const Computed done = compute(queries, k.to(dtype).contiguous(), bank, temperature.value(), options);
    result = {q.size(0) == 0 ? at::zeros({}, done.rows.options()) : done.rows.mean(), done.rows, done.lse,
              done.d_log_scale, done.positive_ranks};
    derivative.saved = {done.d_q, done.pull, k.requires_grad() ? queries : at::Tensor(), done.d_log_scale};
  }
  derivative.function = [temperature](const at::Tensor& d_loss, const std::vector<at::Tensor>& saved,
                                      const std::vector<bool>& wanted) -> std::vector<at::Tensor> {
    const at::Tensor& queries = saved[2];
    return {saved[0].mul(d_loss), wanted[1] ? queries.mul(saved[1]).mul_(d_loss.neg()) : at::Tensor(),
            wanted[2] ? temperature.gradient(saved[3].mul(d_loss)) : at::Tensor()};
  };
  result.loss = differentiable(std::move(result.loss), std::move(derivative));
  return result;
}

}  // namespace spillway::queue

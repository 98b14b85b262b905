#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros.h>

#include <spillway/queue/differentiable.hpp>
#include <spillway/queue/key_window.hpp>
#include <spillway/queue/loss_arguments.hpp>
#include <spillway/queue/negative_bank.hpp>
#include <spillway/queue/negative_sample.hpp>
#include <spillway/queue/negative_sums.hpp>
#include <spillway/queue/online_log_sum_exp.hpp>
#include <spillway/queue/streaming_loss.hpp>

namespace spillway::queue {

namespace {

constexpr char kName[] = "info_nce";

/// What a pass finds out about each query.
struct Computed {
  at::Tensor rows;    // [N]
  at::Tensor lse;     // [N]
  at::Tensor d_q;     // [N, D]: d rows_i / d q_i.
  at::Tensor pull;    // [N, 1]: -d rows_i / d k_i is pull_i q_i.
  at::Tensor harder;  // [N] int64, where asked for.
};

/// With l+ the positive logit and L the log-sum-exp of the negatives, -log p(positive) = softplus(L - l+) and
/// 1 - p(positive) = sigmoid(L - l+). Unlike with the positive folded into the sum, nothing cancels where it dominates.
Computed compute(const at::Tensor& q, const at::Tensor& k, const NegativeSource& source, double temperature,
                 const InfoNceOptions& options) {
  const at::Tensor positive = q.mul(k).sum(1, /*keepdim=*/true).mul_(1.0 / temperature);
  const NegativeQueries queries{q, positive, options.query_labels, temperature, options.rank_positives};
  const NegativeSums negatives = options.ranks == nullptr ? sum_negatives(queries, source)
                                                          : sum_negatives_of_ranks(queries, source, *options.ranks);
  const at::Tensor margin = negatives.log_sum_exp().sub(positive);
  const at::Tensor rows = exact_softplus(margin);
  const at::Tensor pull = at::sigmoid(margin).mul_(1.0 / temperature);
  return {rows.squeeze(1), positive.add(rows).squeeze(1), negatives.mean().sub_(k).mul_(pull), pull,
          options.rank_positives ? negatives.harder.squeeze(1) : at::Tensor()};
}

void check_inputs(const at::Tensor& q, const at::Tensor& k, std::int64_t dim, const Temperature& temperature) {
  temperature.check(kName);
  constexpr char kWhy[] = ": queries and keys have one row each per sample and the bank's dimension";
  const std::int64_t rows = q.defined() && q.dim() > 0 ? q.size(0) : 0;
  check_rows(kName, "q", q, {rows, dim, kWhy});
  check_rows(kName, "k", k, {rows, dim, kWhy});
}

/// The loss of one micro-batch, from what a pass has found out about its queries. @param queries  q as it was computed
/// with.
InfoNceResult mean_loss(const MicroBatch& batch, const at::Tensor& queries, const Computed& done,
                        const Temperature& temperature) {
  InfoNceResult result;
  Derivative derivative{kName, {batch.q, batch.k, temperature.tensor()}, {}, {}};
  {
    const PlainArithmetic plain;
    const std::int64_t n = batch.q.size(0);
    const double share = n == 0 ? 0.0 : 1.0 / static_cast<double>(n);
    const at::Tensor d_q = done.d_q.mul(share);
    const at::Tensor d_log_scale = queries.mul(d_q).sum();
    result = {n == 0 ? at::zeros({}, done.rows.options()) : done.rows.mean(), done.rows, done.lse, d_log_scale,
              done.harder};
    derivative.saved = {d_q, done.pull.mul(share), batch.k.requires_grad() ? queries : at::Tensor(), d_log_scale};
  }
  derivative.function = [temperature](const at::Tensor& d_loss, const std::vector<at::Tensor>& saved,
                                      const std::vector<bool>& wanted) -> std::vector<at::Tensor> {
    const at::Tensor& q = saved[2];
    return {saved[0].mul(d_loss), wanted[1] ? q.mul(saved[1]).mul_(d_loss.neg()) : at::Tensor(),
            wanted[2] ? temperature.gradient(saved[3].mul(d_loss)) : at::Tensor()};
  };
  result.loss = differentiable(std::move(result.loss), std::move(derivative));
  return result;
}

/// Of inputs that are known to fit.
InfoNceResult streamed(const at::Tensor& q, const at::Tensor& k, const NegativeSource& source,
                       const Temperature& temperature, const InfoNceOptions& options) {
  at::Tensor queries;
  Computed done;
  {
    const PlainArithmetic plain;
    const at::ScalarType dtype = compute_dtype(q.scalar_type());
    queries = q.to(dtype).contiguous();
    done = compute(queries, k.to(dtype).contiguous(), source, temperature.value(), options);
  }
  return mean_loss({q, k}, queries, done, temperature);
}

NegativeSource source_of(NegativeBank& bank) {
  return {[&bank](at::ScalarType dtype, const NegativeBank::Visitor& visit) { bank.scan(dtype, visit); }, 0.0};
}

}  // namespace

InfoNceResult info_nce(const at::Tensor& q, const at::Tensor& k, NegativeBank& bank, const Temperature& temperature,
                       const InfoNceOptions& options) {
  check_inputs(q, k, bank.dim(), temperature);
  if (options.query_labels.defined()) {
    check_bank_labels(kName, bank);
    check_row_labels(kName, "query_labels", options.query_labels, q.size(0));
  }
  return streamed(q, k, source_of(bank), temperature, options);
}

InfoNceResult info_nce(const at::Tensor& q, const at::Tensor& k, const SampledNegatives& negatives,
                       const Temperature& temperature, const InfoNceOptions& options) {
  check_rows(kName, "negatives.rows", negatives.rows, {});
  check_inputs(q, k, negatives.rows.size(1), temperature);
  const std::int64_t count = negatives.rows.size(0);
  if (options.query_labels.defined()) {
    check_row_labels(kName, "query_labels", options.query_labels, q.size(0));
    check_row_labels(kName, "negatives.labels", negatives.labels, count);
  }
  const bool corrected = options.correct_sampling && count > 0;
  const double weight =
      static_cast<double>(negatives.population) / static_cast<double>(std::max<std::int64_t>(count, 1));
  const NegativeSource source{[&negatives, count](at::ScalarType dtype, const NegativeBank::Visitor& visit) {
                                const at::Tensor rows = negatives.rows.to(dtype);
                                for (std::int64_t first = 0; first < count; first += kTileRows) {
                                  const std::int64_t length = std::min(kTileRows, count - first);
                                  const at::Tensor labels = negatives.labels.defined()
                                                                ? negatives.labels.narrow(0, first, length)
                                                                : at::Tensor();
                                  visit({rows.narrow(0, first, length), labels, first});
                                }
                              },
                              corrected ? std::log(weight) : 0.0};
  return streamed(q, k, source, temperature, options);
}

std::vector<InfoNceResult> info_nce_of_window(std::span<const MicroBatch> micro_batches, NegativeBank& bank,
                                              const Temperature& temperature, const InfoNceOptions& options) {
  if (micro_batches.empty()) return {};
  InfoNceOptions of_window = options;
  std::vector<at::Tensor> queries;
  std::vector<at::Tensor> keys;
  std::vector<at::Tensor> labels;
  std::int64_t window_rows = 0;
  for (const MicroBatch& batch : micro_batches) {
    check_inputs(batch.q, batch.k, bank.dim(), temperature);
    if (batch.query_labels.defined()) check_row_labels(kName, "query_labels", batch.query_labels, batch.q.size(0));
    const at::ScalarType dtype = compute_dtype(micro_batches.front().q.scalar_type());
    queries.push_back(batch.q.detach().to(dtype));
    keys.push_back(batch.k.detach().to(dtype));
    window_rows += batch.q.size(0);
    if (batch.query_labels.defined()) labels.push_back(batch.query_labels);
  }
  if (!labels.empty()) {
    check_bank_labels(kName, bank);
    of_window.query_labels = at::cat(labels);
    check_row_labels(kName, "query_labels of the window", of_window.query_labels, window_rows);
  }
  at::Tensor q;
  Computed all;
  {
    const PlainArithmetic plain;
    q = at::cat(queries);
    all = compute(q, at::cat(keys), source_of(bank), temperature.value(), of_window);
  }
  std::vector<InfoNceResult> results;
  std::int64_t first = 0;
  for (const MicroBatch& batch : micro_batches) {
    const std::int64_t rows = batch.q.size(0);
    const auto part = [&](const at::Tensor& whole) {
      return whole.defined() ? whole.narrow(0, first, rows).clone() : whole;
    };
    results.push_back(mean_loss(
        batch, part(q), {part(all.rows), part(all.lse), part(all.d_q), part(all.pull), part(all.harder)}, temperature));
    first += rows;
  }
  return results;
}

}  // namespace spillway::queue

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/distributed/together.hpp>
#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/negative_sums.hpp>
#include <spillway/queue/online_log_sum_exp.hpp>

namespace spillway::queue {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

/// A row of `tensors` of each rank, side by side; [N_r, D_0 + D_1 + …].
at::Tensor pack(const NegativeSums& sums) {
  return at::cat({sums.weighted, sums.maximum, sums.sum, sums.harder.to(sums.sum.scalar_type())}, 1);
}

NegativeSums unpack(const at::Tensor& packed, std::int64_t dim) {
  const auto column = [&](std::int64_t index) { return packed.narrow(1, dim + index, 1).contiguous(); };
  return {column(0), column(1), packed.narrow(1, 0, dim).contiguous(), column(2).to(at::kLong)};
}

/// All ranks' queries in rank order.
NegativeQueries gather_queries(const NegativeQueries& own, distributed::Collective& ranks) {
  NegativeQueries all = own;
  const at::Tensor packed = at::cat({own.q, own.positive}, 1);
  const at::Tensor gathered = at::cat(ranks.all_gather(packed));
  all.q = gathered.narrow(1, 0, own.q.size(1)).contiguous();
  all.positive = gathered.narrow(1, own.q.size(1), 1).contiguous();
  if (own.labels.defined()) all.labels = at::cat(ranks.all_gather(own.labels));
  return all;
}

/// Rows of each rank. @throws Error on every rank where they call for different losses.
std::vector<std::int64_t> agree_on_queries(const NegativeQueries& own, distributed::Collective& ranks) {
  const std::int64_t mine[] = {own.q.size(0), own.q.size(1), own.labels.defined() ? 1 : 0, own.count_harder ? 1 : 0,
                               static_cast<std::int64_t>(own.q.scalar_type())};
  constexpr std::size_t kFields = std::size(mine);
  const at::Tensor header = at::empty({kFields}, at::TensorOptions(at::kLong));
  std::copy(std::begin(mine), std::end(mine), header.mutable_data_ptr<std::int64_t>());
  std::vector<std::int64_t> rows;
  for (const at::Tensor& other : ranks.all_gather(header)) {
    const std::int64_t* const theirs = other.const_data_ptr<std::int64_t>();
    rows.push_back(theirs[0]);
    if (std::equal(theirs + 1, theirs + kFields, mine + 1)) continue;
    throw Error("rank " + std::to_string(ranks.rank()) + " and rank " + std::to_string(rows.size() - 1) +
                " compute different losses over one bank: dimension, labels, ranks of positives or dtype of the "
                "queries differ; give info_nce the same options on every rank");
  }
  return rows;
}

}  // namespace

at::Tensor NegativeSums::log_sum_exp() const { return sum.log().add_(maximum); }

at::Tensor NegativeSums::mean() const {
  // Where a query has no negative at all the mean is that of nothing: it must be finite, as it gets no weight.
  return weighted.div(sum.masked_fill(sum.eq(0), 1));
}

NegativeSums sum_negatives(const NegativeQueries& queries, const NegativeSource& source) {
  const at::Tensor& q = queries.q;
  const std::int64_t n = q.size(0);
  OnlineLogSumExp state(n, q.scalar_type());
  at::Tensor weighted = at::zeros(q.sizes(), q.options());
  const at::Tensor harder = at::zeros({n, 1}, q.options().dtype(at::kLong));
  const at::Tensor buffer = at::empty({n * kTileRows}, q.options());
  source.scan(q.scalar_type(), [&](const BankTile& tile) {
    const std::int64_t rows = tile.rows.size(0);
    at::Tensor logits = buffer.narrow(0, 0, n * rows).view({n, rows});
    at::addmm_out(logits, logits, q, tile.rows.t(), /*beta=*/0, /*alpha=*/1.0 / queries.temperature);
    if (queries.labels.defined()) logits.masked_fill_(queries.labels.unsqueeze(1).eq(tile.labels), kNone);
    if (queries.count_harder) harder.add_(logits.gt(queries.positive).sum(1, /*keepdim=*/true));
    weighted.mul_(state.fold(logits));
    at::addmm_out(weighted, weighted, logits, tile.rows);
  });
  return {state.maximum().add(source.log_weight), state.sum(), weighted, harder};
}

NegativeSums join_sums(std::span<const NegativeSums> parts) {
  SPILLWAY_CHECK(!parts.empty(), "no parts to join");
  at::Tensor maximum = parts.front().maximum;
  for (const NegativeSums& part : parts.subspan(1)) maximum = at::maximum(maximum, part.maximum);
  // In the place of -inf, from which nothing may be taken away.
  const at::Tensor shift = maximum.masked_fill(maximum.eq(kNone), 0);
  NegativeSums all{maximum, at::zeros_like(parts.front().sum), at::zeros_like(parts.front().weighted),
                   at::zeros_like(parts.front().harder)};
  for (const NegativeSums& part : parts) {
    const at::Tensor weight = part.maximum.sub(shift).exp_();
    all.sum.addcmul_(part.sum, weight);
    all.weighted.addcmul_(part.weighted, weight);
    all.harder.add_(part.harder);
  }
  return all;
}

NegativeSums sum_negatives_of_ranks(const NegativeQueries& queries, const NegativeSource& source,
                                    distributed::Collective& ranks) {
  const std::vector<std::int64_t> counts = agree_on_queries(queries, ranks);
  const NegativeQueries all = gather_queries(queries, ranks);
  NegativeSums sums;
  distributed::together(ranks, "scan its part of the bank", [&] { sums = sum_negatives(all, source); });

  const at::Tensor packed = pack(sums);
  std::vector<at::Tensor> outgoing;
  std::int64_t first = 0;
  for (const std::int64_t rows : counts) {
    outgoing.push_back(packed.narrow(0, first, rows));
    first += rows;
  }
  std::vector<NegativeSums> parts;
  const std::int64_t dim = queries.q.size(1);
  for (const at::Tensor& part : ranks.all_to_all(outgoing)) {
    parts.push_back(unpack(part.view({queries.q.size(0), packed.size(1)}), dim));
  }
  return join_sums(parts);
}

}  // namespace spillway::queue

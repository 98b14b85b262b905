#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/queue/differentiable.hpp>
#include <spillway/queue/gather_rows.hpp>

namespace spillway::queue {

namespace {

/// Sends every rank its part of `d_gathered` and adds up what the ranks send for this one's.
at::Tensor scatter_sum(const at::Tensor& d_gathered, const std::vector<std::int64_t>& rows,
                       distributed::Collective& ranks) {
  std::vector<at::Tensor> outgoing;
  std::int64_t first = 0;
  for (const std::int64_t count : rows) {
    outgoing.push_back(d_gathered.narrow(0, first, count));
    first += count;
  }
  const at::IntArrayRef sizes = outgoing[static_cast<std::size_t>(ranks.rank())].sizes();
  const std::vector<at::Tensor> incoming = ranks.all_to_all(outgoing);
  at::Tensor sum = incoming.front().view(sizes);
  for (std::size_t rank = 1; rank < incoming.size(); ++rank) sum.add_(incoming[rank].view(sizes));
  return sum;
}

}  // namespace

GatheredRows gather_rows(const at::Tensor& rows, distributed::Collective* ranks) {
  if (ranks == nullptr) return {rows, 0};
  std::vector<at::Tensor> parts;
  GatheredRows gathered;
  std::vector<std::int64_t> counts;
  {
    const PlainArithmetic plain;
    parts = ranks->all_gather(rows);
    for (const at::Tensor& part : parts) {
      if (static_cast<int>(counts.size()) < ranks->rank()) gathered.first += part.size(0);
      counts.push_back(part.size(0));
    }
    gathered.rows = at::cat(parts);
  }
  Derivative derivative{"gather_rows", {rows}, {}, {}};
  derivative.function = [ranks, counts](const at::Tensor& d_gathered, const std::vector<at::Tensor>&,
                                        const std::vector<bool>&) -> std::vector<at::Tensor> {
    return {scatter_sum(d_gathered, counts, *ranks)};
  };
  gathered.rows = differentiable(std::move(gathered.rows), std::move(derivative));
  return gathered;
}

double rank_share(std::int64_t rows, distributed::Collective& ranks) {
  at::Tensor total = at::full({}, rows, at::kLong);
  ranks.all_reduce(total, distributed::Reduction::Sum);
  const auto all = total.item<std::int64_t>();
  return all == 0 ? 0.0 : static_cast<double>(rows) * ranks.world_size() / static_cast<double>(all);
}

}  // namespace spillway::queue

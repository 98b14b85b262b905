#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/loss_arguments.hpp>
#include <spillway/queue/rank_shuffle.hpp>

namespace spillway::queue {

namespace {

bool is_permutation(const at::Tensor& order, std::int64_t rows) {
  return order.defined() && order.dim() == 1 && order.size(0) == rows && order.scalar_type() == at::kLong &&
         order.device().is_cpu() && std::get<0>(order.sort()).equal(at::arange(rows, at::kLong));
}

/// Rank 0's order, or a tensor of -1 where that is no permutation.
at::Tensor agree_on(const at::Tensor& order, std::int64_t all_rows, distributed::Collective& ranks) {
  const bool fits = ranks.rank() != 0 || is_permutation(order, all_rows);
  at::Tensor agreed = at::full({all_rows + 1}, fits ? 0 : -1, at::kLong);
  if (ranks.rank() == 0 && fits) agreed.narrow(0, 1, all_rows).copy_(order);
  ranks.broadcast(agreed, 0);
  if (agreed[0].item<std::int64_t>() != 0) {
    throw ConfigError("rank shuffle: the order on rank 0 is " +
                      (ranks.rank() == 0 ? tensor_text(order) : std::string("wrong")) +
                      ", wanted a permutation of the " + std::to_string(all_rows) + " rows of all ranks, int64 on cpu");
  }
  return agreed.narrow(0, 1, all_rows);
}

}  // namespace

RankShuffle::RankShuffle(std::int64_t rows, const at::Tensor& order, distributed::Collective& ranks)
    : ranks_(ranks), rows_(rows) {
  const at::NoGradGuard no_grad;
  std::vector<std::int64_t> firsts{0};
  for (const at::Tensor& count : ranks.all_gather(at::full({1}, rows, at::kLong))) {
    firsts.push_back(firsts.back() + count.item<std::int64_t>());
  }
  const at::Tensor agreed = agree_on(order, firsts.back(), ranks);
  const auto own = static_cast<std::size_t>(ranks.rank());
  const auto lies_on = [&](const at::Tensor& values, std::size_t rank) {
    return values.ge(firsts[rank]).logical_and(values.lt(firsts[rank + 1]));
  };
  const at::Tensor at_own_places = agreed.narrow(0, firsts[own], rows);
  for (std::size_t rank = 0; rank + 1 < firsts.size(); ++rank) {
    const at::Tensor at_its_places = agreed.narrow(0, firsts[rank], firsts[rank + 1] - firsts[rank]);
    given_.push_back(at_its_places.masked_select(lies_on(at_its_places, own)).sub(firsts[own]));
    taken_.push_back(lies_on(at_own_places, rank).nonzero().squeeze(1));
  }
}

at::Tensor RankShuffle::exchange(const at::Tensor& rows, const std::vector<at::Tensor>& outgoing,
                                 const std::vector<at::Tensor>& incoming) const {
  if (!rows.defined() || rows.dim() == 0 || rows.size(0) != rows_) {
    throw ConfigError("rank shuffle: got " + tensor_text(rows) + ", wanted " + std::to_string(rows_) +
                      " rows, as at construction");
  }
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& indices : outgoing) parts.push_back(rows.index_select(0, indices));
  const std::vector<at::Tensor> received = ranks_.all_to_all(parts);
  at::Tensor result = at::empty_like(rows, at::MemoryFormat::Contiguous);
  std::vector<std::int64_t> sizes = rows.sizes().vec();
  for (std::size_t rank = 0; rank < received.size(); ++rank) {
    sizes.front() = incoming[rank].size(0);
    result.index_copy_(0, incoming[rank], received[rank].view(sizes));
  }
  return result;
}

at::Tensor RankShuffle::shuffle(const at::Tensor& rows) const { return exchange(rows, given_, taken_); }

at::Tensor RankShuffle::unshuffle(const at::Tensor& rows) const { return exchange(rows, taken_, given_); }

}  // namespace spillway::queue

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/topk.h>

#include <spillway/offload/error.hpp>
#include <spillway/queue/differentiable.hpp>
#include <spillway/queue/hard_negatives.hpp>
#include <spillway/queue/loss_arguments.hpp>
#include <spillway/queue/negative_bank.hpp>

namespace spillway::queue {

HardNegatives hardest_negatives(const at::Tensor& q, NegativeBank& bank, std::int64_t count,
                                const at::Tensor& query_labels) {
  constexpr char kName[] = "hardest_negatives";
  check_rows(kName, "q", q, {WantedRows::kAny, bank.dim(), ": queries have the bank's dimension"});
  if (count < 1) throw ConfigError(std::string(kName) + ": count is " + std::to_string(count) + ", wanted 1 or more");
  if (query_labels.defined()) {
    check_bank_labels(kName, bank);
    check_row_labels(kName, "query_labels", query_labels, q.size(0));
  }
  const PlainArithmetic plain;
  const std::int64_t n = q.size(0);
  const at::Tensor queries = q.to(compute_dtype(q.scalar_type())).contiguous();
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  HardNegatives best{at::empty({n, 0}, queries.options()), at::empty({n, 0}, queries.options().dtype(at::kLong))};
  bank.scan(queries.scalar_type(), [&](const BankTile& tile) {
    const std::int64_t rows = tile.rows.size(0);
    at::Tensor similarities = at::matmul(queries, tile.rows.t());
    if (query_labels.defined()) similarities.masked_fill_(query_labels.unsqueeze(1).eq(tile.labels), kNone);
    const at::Tensor numbers =
        at::arange(tile.first, tile.first + rows, best.indices.options()).unsqueeze(0).expand({n, rows});
    const at::Tensor all = at::cat({best.similarities, similarities}, 1);
    const auto [values, places] = at::topk(all, std::min(count, all.size(1)), 1);
    best.indices = at::cat({best.indices, numbers}, 1).gather(1, places);
    best.similarities = values;
  });
  best.indices.masked_fill_(best.similarities.eq(kNone), -1);
  return best;
}

}  // namespace spillway::queue

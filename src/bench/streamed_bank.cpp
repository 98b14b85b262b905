#include <spillway/app/bench/streamed_bank.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/logsumexp.h>

#include <spillway/app/bench/log_sinks.hpp>
#include <spillway/offload/check.hpp>

namespace spillway::app {
namespace {

constexpr std::int64_t kDistinctRows = 4'096;
constexpr std::uint64_t kSegmentsOfBudget = 64;
constexpr std::uint64_t kRowBytes = StreamedBank::kDim * 2;

}  // namespace

StreamedBank::StreamedBank(const std::string& folder, std::uint64_t bytes) {
  SPILLWAY_CHECK(bytes > 0 && bytes % kBytesUnit == 0, "a streamed bank of a bench has whole units");
  offload::TiersOptions tiers;
  tiers.nvme_path = folder;
  tiers.log = say_nothing;
  tiers_ = std::make_shared<offload::Tiers>(std::move(tiers));
  queue::BankOptions options;
  options.capacity = static_cast<std::int64_t>(bytes / kRowBytes);
  options.dim = kDim;
  options.segment_rows = static_cast<std::int64_t>(host_bytes(bytes) / kSegmentsOfBudget / kRowBytes);
  options.disk_allowed = !folder.empty();
  options.host_bytes = folder.empty() ? offload::kUnlimitedBytes : host_bytes(bytes);
  bank_ = std::make_unique<queue::NegativeBank>(tiers_, options);
  distinct_ = bench_unit_rows(kDistinctRows, kDim, 1).to(at::kHalf);
  for (std::int64_t row = 0; row < options.capacity; row += kDistinctRows) {
    bank_->enqueue(distinct_);
  }
  bank_->flush();
}

LossAndGradient StreamedBank::expected(const at::Tensor& q, const at::Tensor& k) const {
  const double times = static_cast<double>(bank_->size()) / static_cast<double>(kDistinctRows);
  const at::Tensor leaf = q.to(at::kDouble).detach().requires_grad_();
  const at::Tensor positive = leaf.mul(k.to(at::kDouble)).sum(1, /*keepdim=*/true).div(kBenchTemperature);
  const at::Tensor negatives = leaf.matmul(distinct_.to(at::kDouble).t()).div(kBenchTemperature).add(std::log(times));
  const at::Tensor loss = at::logsumexp(at::cat({positive, negatives}, 1), {1}, /*keepdim=*/true).sub(positive).mean();
  loss.backward();
  return {loss.detach(), leaf.grad()};
}

}  // namespace spillway::app

// What the loss costs in memory, as the operating system sees it.
#include <cstdio>
#include <string>

#include <ATen/ops/cat.h>
#include <ATen/ops/logsumexp.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <queue/resident_memory.hpp>
#include <spillway/queue/streaming_loss.hpp>

namespace spillway::queue::streaming_loss_memory_test {
namespace {

using offload::Tier;
using test::peak_growth_bytes;
using test::random_rows;
using test::Storage;

constexpr std::int64_t kRows = 262'144;
constexpr std::int64_t kDim = 128;
constexpr std::int64_t kQueries = 256;
constexpr std::int64_t kMiB = 1 << 20;

void warm_up() {
  const at::Tensor q = random_rows(kQueries, kDim, 1).requires_grad_();
  const at::Tensor rows = random_rows(kTileRows, kDim, 2);
  q.matmul(rows.t()).exp().sum().backward();
}

TEST(StreamingLossMemory, StaysFarBelowThatOfTheBankAndOfItsLogits) {
  warm_up();
  const test::TestTiers tiers(Storage::kThreads);
  BankOptions options;
  options.capacity = kRows;
  options.dim = kDim;
  options.segment_rows = 2'048;
  options.host_bytes = 4 * kMiB;
  options.disk_allowed = true;

  const std::int64_t streamed = peak_growth_bytes([&] {
    NegativeBank bank(tiers.get(), options);
    for (std::uint64_t seed = 0; bank.size() < kRows; ++seed) bank.enqueue(random_rows(1'024, kDim, seed));
    ASSERT_GE(bank.segments_on(Tier::kDisk), 120);
    const at::Tensor q = random_rows(kQueries, kDim, 1).requires_grad_();
    info_nce(q, random_rows(kQueries, kDim, 2), bank, 10.0).loss.backward();
    ASSERT_TRUE(q.grad().isfinite().all().item<bool>());
  });
  EXPECT_LT(streamed, 64 * kMiB);

  // The control: the same loss as a table of logits, from rows in memory.
  const std::int64_t dense = peak_growth_bytes([&] {
    const at::Tensor rows = random_rows(kRows, kDim, 3, at::kHalf).to(at::kFloat);
    const at::Tensor q = random_rows(kQueries, kDim, 1).requires_grad_();
    at::logsumexp(q.matmul(rows.t()).div(10.0), {1}).mean().backward();
  });
  EXPECT_GT(dense, 64 * kMiB);
  RecordProperty("streamed_mib", std::to_string(streamed / kMiB));
  RecordProperty("dense_mib", std::to_string(dense / kMiB));
  std::printf("peak growth: %ld MiB streamed, %ld MiB dense\n", static_cast<long>(streamed / kMiB),
              static_cast<long>(dense / kMiB));
}

}  // namespace
}  // namespace spillway::queue::streaming_loss_memory_test

// What the losses within a batch cost in memory, as the operating system sees it.
#include <cstdio>
#include <string>

#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/logsumexp.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <queue/resident_memory.hpp>
#include <spillway/queue/contrastive_loss.hpp>

namespace spillway::queue::contrastive_loss_memory_test {
namespace {

using test::peak_growth_bytes;
using test::random_rows;

constexpr std::int64_t kMiB = 1 << 20;

void run_nt_xent(std::int64_t pairs, std::int64_t dim) {
  const at::Tensor view0 = random_rows(pairs, dim, 1).requires_grad_();
  const at::Tensor view1 = random_rows(pairs, dim, 2).requires_grad_();
  nt_xent(view0, view1, 10.0).loss.backward();
  ASSERT_TRUE(view0.grad().isfinite().all().item<bool>());
}

void run_table_of_logits(std::int64_t pairs, std::int64_t dim) {
  const at::Tensor rows = at::cat({random_rows(pairs, dim, 1), random_rows(pairs, dim, 2)}).requires_grad_();
  at::logsumexp(rows.matmul(rows.t()).div(10.0), {1}).mean().backward();
}

// Rows 12 and 16 of the list of others' bugs: memory of the square, or the cube, of the batch. 65,536 pairs of
// dimension 128 are to stay below 256 MiB, which is 8 MiB for 2,048 of them; the tiles come on top, once.
TEST(ContrastiveLossMemory, GrowsWithTheRowsAndNotWithTheirSquare) {
  run_nt_xent(600, 16);                       // Threads and their buffers.
  constexpr std::int64_t kInputs = 2 * kMiB;  // Two views; what they are made of is freed before.
  const std::int64_t streamed = peak_growth_bytes([] { run_nt_xent(2'048, 128); });
  EXPECT_LT(streamed, kInputs + 8 * kMiB + 8 * kMiB);
  const std::int64_t table = peak_growth_bytes([] { run_table_of_logits(2'048, 128); });
  EXPECT_GT(table, 128 * kMiB);
  std::printf("peak growth: %ld MiB streamed, %ld MiB as a table\n", static_cast<long>(streamed / kMiB),
              static_cast<long>(table / kMiB));
}

// Row 12: 1,200 rows of dimension 192.
TEST(ContrastiveLossMemory, StaysBelow64MebibytesForTwelveHundredRows) {
  run_nt_xent(64, 16);
  const std::int64_t growth = peak_growth_bytes([] { run_nt_xent(600, 192); });
  EXPECT_LT(growth, 64 * kMiB);
}

}  // namespace
}  // namespace spillway::queue::contrastive_loss_memory_test

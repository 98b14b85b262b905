#include <limits>
#include <tuple>

#include <ATen/ops/arange.h>
#include <ATen/ops/topk.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/hard_negatives.hpp>

namespace spillway::queue::hard_negatives_test {
namespace {

using test::numbers;
using test::random_rows;
using test::Storage;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(HardNegatives, AreTheRowsWithTheLargestDotProductsOnEveryTier) {
  const at::Tensor q = random_rows(6, 9, 2, at::kDouble);
  for (const Storage storage : test::kEveryStorage) {
    const test::TestTiers tiers(storage);
    for (const std::int64_t segment_rows : {7, 64}) {
      test::BankShape shape{1300, 9, at::kHalf, segment_rows};
      shape.labels = true;
      NegativeBank bank(tiers.get(), test::bank_options(shape, storage));
      bank.enqueue(random_rows(1500, 9, 1), numbers(0, 1500).remainder(4));
      const at::Tensor products = q.matmul(test::contents(bank, at::kDouble).t());
      for (const std::int64_t count : {1, 600, 2000}) {
        const HardNegatives got = hardest_negatives(q, bank, count);
        const auto [values, places] = at::topk(products, std::min<std::int64_t>(count, 1300), 1);
        EXPECT_TRUE(got.similarities.allclose(values, 0, 1e-12));
        EXPECT_TRUE(got.indices.equal(places));
      }
      const at::Tensor labels = numbers(0, 6).remainder(4);
      const at::Tensor same = labels.unsqueeze(1).eq(bank.labels(numbers(0, 1300)));
      const HardNegatives masked = hardest_negatives(q, bank, 10, labels);
      const at::Tensor without = products.masked_fill(same, -std::numeric_limits<double>::infinity());
      EXPECT_TRUE(masked.indices.equal(std::get<1>(at::topk(without, 10, 1))));
      EXPECT_FALSE(masked.indices.equal(std::get<1>(at::topk(products, 10, 1))));
      // Their values, from the bank.
      const at::Tensor rows = bank.rows(masked.indices.flatten(), at::kDouble).view({6, 10, 9});
      EXPECT_TRUE(rows.mul(q.unsqueeze(1)).sum(2).allclose(masked.similarities, 0, 1e-12));
    }
  }
}

TEST(HardNegatives, SayWhereThereAreNotAsMany) {
  const test::TestTiers tiers(Storage::kMemory);
  test::BankShape shape{10, 3, at::kFloat, 4};
  shape.labels = true;
  NegativeBank bank(tiers.get(), test::bank_options(shape, Storage::kMemory));
  const at::Tensor q = random_rows(2, 3, 1);
  EXPECT_EQ(hardest_negatives(q, bank, 5).indices.size(1), 0);
  bank.enqueue(random_rows(3, 3, 2), numbers(0, 3).clamp_max(1));  // Labels 0, 1, 1.
  const HardNegatives got = hardest_negatives(q, bank, 5, numbers(0, 2));
  EXPECT_EQ(got.indices.size(1), 3);
  EXPECT_EQ(got.indices[0][2].item<std::int64_t>(), -1);
  EXPECT_EQ(got.indices[1][0].item<std::int64_t>(), 0);
  EXPECT_EQ(got.indices[1][1].item<std::int64_t>(), -1);
  EXPECT_EQ(hardest_negatives(q.narrow(0, 0, 0), bank, 2).indices.size(0), 0);
}

TEST(HardNegatives, RefuseWhatDoesNotFit) {
  const test::TestTiers tiers(Storage::kMemory);
  NegativeBank bank(tiers.get(), test::bank_options({10, 3, at::kFloat, 4}, Storage::kMemory));
  const at::Tensor q = random_rows(2, 3, 1);
  const auto refused = [&](const at::Tensor& queries, std::int64_t count, const at::Tensor& labels, const char* text) {
    EXPECT_THAT([&] { (void)hardest_negatives(queries, bank, count, labels); },
                ThrowsMessage<ConfigError>(HasSubstr(text)));
  };
  refused(random_rows(2, 4, 1), 1, {}, "wanted [rows, 3]");
  refused(q, 0, {}, "count is 0");
  refused(q, 1, numbers(0, 2), "BankOptions::labels");
}

}  // namespace
}  // namespace spillway::queue::hard_negatives_test

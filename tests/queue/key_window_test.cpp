// When the keys of a window of gradient accumulation enter the bank.
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <queue/rank_fixture.hpp>
#include <spillway/distributed/collective.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/key_window.hpp>
#include <spillway/queue/rank_bank.hpp>

namespace spillway::queue::key_window_test {
namespace {

using distributed::Collective;
using test::bank_options;
using test::contents;
using test::ids;
using test::numbers;
using test::on_ranks;
using test::random_rows;
using test::Storage;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Row 14 of the bugs of others: a key that meets itself, as nobody said whether the loss or the bank comes first.
TEST(KeyWindow, LetsKeysInOnceAfterTheStepSoThatAllMicroBatchesMeetTheSameBank) {
  for (const Storage storage : test::kEveryStorage) {
    const test::TestTiers tiers(storage);
    NegativeBank bank(tiers.get(), bank_options({60, 5, at::kFloat, 7}, storage));
    const at::Tensor before = random_rows(50, 5, 1);
    bank.enqueue(before);
    KeyWindow window(bank);
    const std::uint64_t version = bank.version();
    at::Tensor added = before;
    for (std::uint64_t micro = 0; micro < 3; ++micro) {
      window.prefetch();
      const at::Tensor q = random_rows(4, 5, 10 + micro);
      const at::Tensor k = random_rows(4, 5, 20 + micro).requires_grad_();
      const InfoNceResult result = info_nce(q, k, bank, 0.5);
      window.add(k);
      EXPECT_EQ(bank.version(), version);
      const test::TestTiers memory(Storage::kMemory);
      NegativeBank same(memory.get(), bank_options({60, 5, at::kFloat, 7}, Storage::kMemory));
      same.enqueue(before);
      EXPECT_TRUE(result.rows.equal(info_nce(q, k, same, 0.5).rows));
      added = at::cat({added, k.detach()});
    }
    EXPECT_EQ(window.pending_rows(), 12);
    window.finish();
    EXPECT_EQ(window.pending_rows(), 0);
    EXPECT_TRUE(contents(bank).equal(added.narrow(0, 2, 60)));
    window.finish();  // A window without keys.
    EXPECT_TRUE(contents(bank).equal(added.narrow(0, 2, 60)));
  }
}

// Row 29: steps that an overflow skipped, whose keys entered all the same.
TEST(KeyWindow, DropsTheKeysOfAStepThatWasSkipped) {
  const test::TestTiers tiers(Storage::kMemory);
  NegativeBank bank(tiers.get(), bank_options({10, 1, at::kFloat, 4}, Storage::kMemory));
  bank.enqueue(ids(0, 5));
  KeyWindow window(bank);
  window.add(ids(100, 3));
  window.finish(/*stepped=*/false);
  EXPECT_TRUE(contents(bank).equal(ids(0, 5)));
  window.add(ids(5, 2));
  window.finish();
  EXPECT_TRUE(contents(bank).equal(ids(0, 7)));
}

TEST(KeyWindow, CarriesLabelsAlong) {
  const test::TestTiers tiers(Storage::kMemory);
  test::BankShape shape{10, 1, at::kFloat, 4};
  shape.labels = true;
  NegativeBank bank(tiers.get(), bank_options(shape, Storage::kMemory));
  KeyWindow window(bank);
  window.add(ids(0, 2), numbers(70, 2));
  window.add(ids(2, 3), numbers(80, 3));
  window.finish();
  EXPECT_TRUE(bank.labels(numbers(0, 5)).equal(at::cat({numbers(70, 2), numbers(80, 3)})));
  window.finish();
  EXPECT_EQ(bank.size(), 5);
}

TEST(KeyWindow, NoticesThatSomebodyElseChangedTheBank) {
  const test::TestTiers tiers(Storage::kMemory);
  NegativeBank bank(tiers.get(), bank_options({10, 1, at::kFloat, 4}, Storage::kMemory));
  KeyWindow window(bank);
  window.add(ids(0, 2));
  bank.enqueue(ids(50, 1));
  EXPECT_THAT([&] { window.add(ids(2, 2)); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("bank"), HasSubstr("within a window"))));
  window.add(ids(4, 2));  // Another window.
  bank.clear();
  EXPECT_THROW(window.finish(), ConfigError);
  bank.enqueue(ids(7, 1));  // Between windows.
  window.add(ids(8, 1));
  window.finish();
  EXPECT_TRUE(contents(bank).equal(ids(7, 2)));
}

TEST(KeyWindow, OrdersKeysByRankAndThenByMicroBatch) {
  on_ranks(3, [](Collective& ranks) {
    const test::TestTiers tiers(Storage::kMemory);
    RankBank bank(tiers.get(), {bank_options({100, 1, at::kFloat, 4}, Storage::kMemory), BankSharing::kReplicated, {}},
                  ranks);
    KeyWindow window(bank);
    // Rank r has r micro-batches of two keys: rank 0 has none, and takes part.
    for (int micro = 0; micro < ranks.rank(); ++micro) window.add(ids(ranks.rank() * 100 + micro * 10, 2));
    window.finish();
    EXPECT_TRUE(contents(bank.local()).equal(at::cat({ids(100, 2), ids(200, 2), ids(210, 2)})));
    window.add(ids(0, 1));
    window.finish(/*stepped=*/false);
    EXPECT_EQ(bank.size(), 6);
  });
}

TEST(InfoNceOfWindow, ReadsTheBankOnceAndGivesEachMicroBatchItsOwnLoss) {
  for (const Storage storage : test::kEveryStorage) {
    const test::TestTiers tiers(storage);
    test::BankShape shape{900, 6, at::kHalf, 64};
    shape.labels = true;
    NegativeBank bank(tiers.get(), bank_options(shape, storage));
    bank.enqueue(random_rows(900, 6, 1), numbers(0, 900).remainder(4));
    std::vector<MicroBatch> window;
    std::vector<at::Tensor> leaves;
    for (const std::int64_t rows : {3, 0, 7, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * rows);
      leaves.push_back(random_rows(rows, 6, seed + 2, at::kDouble).requires_grad_());
      leaves.push_back(random_rows(rows, 6, seed + 3, at::kDouble).requires_grad_());
      window.push_back({leaves[leaves.size() - 2], leaves.back(), numbers(0, rows).remainder(4)});
    }
    const at::Tensor temperature = at::tensor({0.4}, at::TensorOptions(at::kDouble)).requires_grad_();
    const std::uint64_t read_before = tiers.get()->stats().read_bytes;
    const std::uint64_t one_scan = bank.predicted_read_bytes_per_scan();
    const std::vector<InfoNceResult> results = info_nce_of_window(window, bank, temperature, {.rank_positives = true});
    EXPECT_EQ(tiers.get()->stats().read_bytes - read_before, one_scan);
    ASSERT_EQ(results.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      const at::Tensor q = window[i].q.detach().clone().requires_grad_();
      const at::Tensor k = window[i].k.detach().clone().requires_grad_();
      const at::Tensor t = temperature.detach().clone().requires_grad_();
      const InfoNceResult alone =
          info_nce(q, k, bank, t, {.query_labels = window[i].query_labels, .rank_positives = true});
      alone.loss.backward();
      temperature.mutable_grad().reset();
      results[i].loss.backward();
      EXPECT_TRUE(results[i].loss.allclose(alone.loss, 0, 1e-12));
      EXPECT_TRUE(results[i].rows.allclose(alone.rows, 0, 1e-12));
      EXPECT_TRUE(results[i].positive_ranks.equal(alone.positive_ranks));
      EXPECT_TRUE(results[i].d_log_scale.allclose(alone.d_log_scale, 0, 1e-12));
      EXPECT_TRUE(window[i].q.grad().allclose(q.grad(), 0, 1e-12));
      EXPECT_TRUE(window[i].k.grad().allclose(k.grad(), 0, 1e-12));
      EXPECT_TRUE(temperature.grad().allclose(t.grad(), 0, 1e-12));
    }
  }
}

TEST(InfoNceOfWindow, ChecksEachMicroBatch) {
  const test::TestTiers tiers(Storage::kMemory);
  NegativeBank bank(tiers.get(), bank_options({10, 6, at::kHalf, 4}, Storage::kMemory));
  EXPECT_TRUE(info_nce_of_window({}, bank, 1.0).empty());
  const at::Tensor rows = random_rows(3, 6, 1);
  const std::vector<MicroBatch> wrong{{rows, rows}, {rows, random_rows(3, 5, 1)}};
  EXPECT_THAT([&] { (void)info_nce_of_window(wrong, bank, 1.0); },
              ThrowsMessage<ConfigError>(HasSubstr("k is [3, 5]")));
}

}  // namespace
}  // namespace spillway::queue::key_window_test

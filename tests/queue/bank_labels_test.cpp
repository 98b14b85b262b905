// Labels beside the rows of a bank, and the negatives that the loss leaves out by them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/streaming_loss.hpp>
#include <support/golden_torch.hpp>

namespace spillway::queue::bank_labels_test {
namespace {

using test::GoldenFile;
using test::numbers;
using test::random_rows;
using test::scalar;
using test::Storage;
using test::tensor;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Options for a bank with labels.
BankOptions labelled(test::BankShape shape, Storage storage) {
  shape.labels = true;
  return test::bank_options(shape, storage);
}

at::Tensor labels_of(NegativeBank& bank) {
  std::vector<at::Tensor> labels{at::empty({0}, at::TensorOptions(at::kLong))};
  bank.scan(at::kFloat, [&](const BankTile& tile) { labels.push_back(tile.labels.clone()); });
  return at::cat(labels);
}

struct Answer {
  at::Tensor rows, d_q;
};

Answer answer(const at::Tensor& q, const at::Tensor& k, NegativeBank& bank, double temperature,
              const InfoNceOptions& options) {
  const at::Tensor leaf = q.clone().requires_grad_();
  const InfoNceResult result = info_nce(leaf, k, bank, temperature, options);
  result.loss.backward();
  return {result.rows, leaf.grad()};
}

class Labels : public testing::TestWithParam<Storage> {
 protected:
  Labels() : tiers_(GetParam()) {}
  test::TestTiers tiers_;
};

INSTANTIATE_TEST_SUITE_P(Storage, Labels, testing::ValuesIn(test::kEveryStorage),
                         [](const auto& instance) { return test::to_string(instance.param); });

TEST_P(Labels, StayBesideTheirRows) {
  for (const std::int64_t segment_rows : test::kSegmentRows) {
    SCOPED_TRACE(segment_rows);
    NegativeBank bank(tiers_.get(), labelled({600, 1, at::kFloat, segment_rows}, GetParam()));
    std::int64_t entered = 0;
    for (const std::int64_t rows : {5, 0, 590, 13, 600, 700, 1}) {
      const at::Tensor ids = numbers(entered, rows);
      bank.enqueue(ids.to(at::kFloat).unsqueeze(1), ids.add(1'000'000));
      entered += rows;
      const std::int64_t size = std::min<std::int64_t>(entered, 600);
      EXPECT_TRUE(labels_of(bank).equal(numbers(1'000'000 + entered - size, size)));
      EXPECT_TRUE(test::contents(bank).equal(numbers(entered - size, size).to(at::kFloat).unsqueeze(1)));
    }
  }
}

TEST_P(Labels, GoWithRowsThatAreRejected) {
  NegativeBank bank(tiers_.get(), labelled({20, 2, at::kHalf, 3}, GetParam()));
  const at::Tensor rows = random_rows(6, 2, 1);
  rows[1][0].fill_(std::numeric_limits<float>::quiet_NaN());
  rows[4][1].fill_(1e9F);
  bank.enqueue(rows, numbers(10, 6));
  EXPECT_TRUE(labels_of(bank).equal(at::cat({numbers(10, 1), numbers(12, 2), numbers(15, 1)})));
  bank.clear();
  bank.enqueue(rows.narrow(0, 2, 2), numbers(70, 2));
  EXPECT_TRUE(labels_of(bank).equal(numbers(70, 2)));
}

TEST_P(Labels, LeaveOutWhatTheGoldenDataLeavesOut) {
  const GoldenFile file = GoldenFile::open("06_moco_duplicates");
  for (const std::int64_t segment_rows : test::kSegmentRows) {
    SCOPED_TRACE(segment_rows);
    NegativeBank bank(tiers_.get(), labelled({11, 16, at::kDouble, segment_rows}, GetParam()));
    bank.enqueue(tensor(file, "bank"), tensor(file, "bank_id"));
    const at::Tensor q = tensor(file, "q");
    const at::Tensor k = tensor(file, "k");
    const Answer masked = answer(q, k, bank, scalar(file, "T"), {.query_labels = tensor(file, "query_id")});
    const at::Tensor error = masked.rows.sub(tensor(file, "loss_rows_same_id_excluded")).abs();
    EXPECT_LE(error.max().item<double>(), 1e-12);
    // Without the mask duplicates count with their multiplicity.
    const Answer all = answer(q, k, bank, scalar(file, "T"), {});
    EXPECT_LE(all.rows.sub(tensor(file, "loss_rows")).abs().max().item<double>(), 1e-12);
    EXPECT_GE(all.rows[1].item<double>(), std::log(3.0));
  }
}

TEST_P(Labels, MaskLossAndGradientAsADenseLossDoes) {
  constexpr std::int64_t kRows = 2 * kTileRows + 100;
  const at::Tensor rows = random_rows(kRows, 8, 1, at::kDouble);
  const at::Tensor row_labels = numbers(0, kRows).remainder(5);
  NegativeBank bank(tiers_.get(), labelled({kRows, 8, at::kDouble, 64}, GetParam()));
  bank.enqueue(rows, row_labels);
  const at::Tensor k = random_rows(9, 8, 2, at::kDouble);
  const at::Tensor q = random_rows(9, 8, 3, at::kDouble).requires_grad_();
  const at::Tensor q_labels = numbers(-2, 9);  // Some have no row of theirs.

  const at::Tensor positive = q.mul(k).sum(1, true);
  const at::Tensor same = q_labels.unsqueeze(1).eq(row_labels);
  const at::Tensor negatives = q.matmul(rows.t()).masked_fill(same, -std::numeric_limits<double>::infinity());
  const at::Tensor wanted = at::logsumexp(at::cat({positive, negatives}, 1), {1}).sub(positive.squeeze(1));
  wanted.mean().backward();

  const Answer got = answer(q.detach(), k, bank, 1.0, {.query_labels = q_labels});
  EXPECT_TRUE(got.rows.allclose(wanted.detach(), 0, 1e-12));
  EXPECT_TRUE(got.d_q.allclose(q.grad(), 0, 1e-12));
}

TEST_P(Labels, LeaveAQueryWithoutNegativesAtExactlyZero) {
  NegativeBank bank(tiers_.get(), labelled({40, 8, at::kHalf, 7}, GetParam()));
  bank.enqueue(random_rows(40, 8, 1), at::full({40}, 3, at::TensorOptions(at::kLong)));
  const at::Tensor labels = numbers(2, 3);  // The one in the middle is the bank's only label.
  const Answer got = answer(random_rows(3, 8, 2), random_rows(3, 8, 3), bank, 0.07, {.query_labels = labels});
  EXPECT_EQ(got.rows[1].item<double>(), 0.0);
  EXPECT_TRUE(got.d_q[1].eq(0).all().item<bool>());
  EXPECT_TRUE(got.d_q.isfinite().all().item<bool>());
  EXPECT_GT(got.rows[0].item<double>(), 0.0);
  EXPECT_TRUE(got.d_q[0].ne(0).any().item<bool>());
}

TEST(LabelErrors, NameWhatWasWantedAndLoseNothing) {
  const test::TestTiers tiers(Storage::kMemory);
  NegativeBank with(tiers.get(), labelled({10, 2, at::kHalf, 3}, Storage::kMemory));
  NegativeBank without(tiers.get(), test::bank_options({10, 2, at::kHalf, 3}, Storage::kMemory));
  const at::Tensor rows = random_rows(4, 2, 1);
  const auto refused = [&](NegativeBank& bank, const at::Tensor& labels, const char* text) {
    EXPECT_THAT([&] { bank.enqueue(rows, labels); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("bank"), HasSubstr(text))));
    EXPECT_EQ(bank.size(), 0);
  };
  refused(with, {}, "pass labels");
  refused(with, numbers(0, 3), "[3] long");
  refused(with, numbers(0, 4).to(at::kInt), "int64");
  refused(with, numbers(0, 4).unsqueeze(1), "[4, 1]");
  refused(without, numbers(0, 4), "BankOptions::labels");
  const auto loss_refused = [&](NegativeBank& bank, const at::Tensor& labels, const char* text) {
    EXPECT_THAT([&] { (void)info_nce(rows, rows, bank, 1.0, {.query_labels = labels}); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("query_labels"), HasSubstr(text))));
  };
  loss_refused(without, numbers(0, 4), "BankOptions::labels");
  loss_refused(with, numbers(0, 5), "wanted [4] int64");
  loss_refused(with, numbers(0, 4).to(at::kFloat), "float");
}

TEST(LabelBudget, IsReservedWithTheRest) {
  const BankOptions options = labelled({1000, 4, at::kHalf, 64}, Storage::kMemory);
  EXPECT_EQ(place_bank(options).label_bytes, 8'000U);
  const test::TestTiers tiers(Storage::kMemory, place_bank(options).host_bytes());
  const NegativeBank bank(tiers.get(), options);
  EXPECT_EQ(tiers.get()->host().used_bytes(), place_bank(options).host_bytes());
}

}  // namespace
}  // namespace spillway::queue::bank_labels_test

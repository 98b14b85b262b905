#include <cmath>
#include <limits>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <queue/bank_fixture.hpp>
#include <queue/numerics.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/streaming_loss.hpp>

namespace spillway::queue::streaming_loss_test {
namespace {

using offload::Tier;
using test::bank_options;
using test::random_rows;
using test::Storage;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::int64_t kDim = 24;

at::Tensor normalised(std::int64_t rows, std::uint64_t seed, at::ScalarType dtype = at::kFloat) {
  const at::Tensor raw = random_rows(rows, kDim, seed, at::kDouble);
  return raw.div(raw.norm(2, {1}, /*keepdim=*/true)).to(dtype);
}

/// The loss as a table of all logits, for autograd to differentiate.
at::Tensor dense_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& bank, double temperature) {
  const at::Tensor positive = q.mul(k).sum(1, /*keepdim=*/true).div(temperature);
  const at::Tensor logits = at::cat({positive, q.matmul(bank.t()).div(temperature)}, 1);
  return at::logsumexp(logits, {1}).sub(positive.squeeze(1));
}

struct Answer {
  at::Tensor loss, rows, lse, d_q;
};

Answer answer(const at::Tensor& q, const at::Tensor& k, NegativeBank& bank, double temperature = 0.07) {
  const at::Tensor leaf = q.clone().requires_grad_();
  const InfoNceResult result = info_nce(leaf, k, bank, temperature);
  result.loss.backward();
  return {result.loss.detach(), result.rows, result.lse, leaf.grad()};
}

void expect_same_bits(const Answer& got, const Answer& wanted) {
  EXPECT_TRUE(got.loss.equal(wanted.loss));
  EXPECT_TRUE(got.rows.equal(wanted.rows));
  EXPECT_TRUE(got.lse.equal(wanted.lse));
  EXPECT_TRUE(got.d_q.equal(wanted.d_q));
}

/// A bank in memory that holds `rows`, in float64 unless told otherwise.
struct MemoryBank {
  explicit MemoryBank(const at::Tensor& rows, at::ScalarType dtype = at::kDouble)
      : tiers(Storage::kMemory),
        bank(tiers.get(), bank_options({std::max<std::int64_t>(rows.size(0), 1), kDim, dtype, 100}, Storage::kMemory)) {
    bank.enqueue(rows);
  }
  test::TestTiers tiers;
  NegativeBank bank;
};

TEST(InfoNce, EqualsTheDenseLossOverSeveralTiles) {
  const at::Tensor rows = normalised(2 * kTileRows + 77, 1, at::kDouble);
  MemoryBank memory(rows);
  const at::Tensor k = normalised(33, 3, at::kDouble);
  const at::Tensor q = normalised(33, 2, at::kDouble).requires_grad_();
  const at::Tensor wanted = dense_rows(q, k, rows, 0.07);
  wanted.mean().backward();
  const Answer got = answer(q.detach(), k, memory.bank);
  EXPECT_TRUE(got.rows.allclose(wanted.detach(), 0, 1e-12));
  EXPECT_TRUE(got.d_q.allclose(q.grad(), 0, 1e-12));
}

TEST(InfoNce, GivesTheSameBitsWhereverTheRowsLive) {
  constexpr std::int64_t kCapacity = 3000;
  const at::Tensor rows = normalised(kCapacity + 500, 1);
  const at::Tensor q = normalised(64, 2);
  const at::Tensor k = normalised(64, 3);
  const auto fill = [&](NegativeBank& bank) {
    for (std::int64_t first = 0; first < rows.size(0); first += 350) bank.enqueue(rows.narrow(0, first, 350));
  };
  const test::TestTiers memory(Storage::kMemory);
  NegativeBank one_segment(memory.get(), bank_options({kCapacity, kDim, at::kHalf, 10'000}, Storage::kMemory));
  fill(one_segment);
  const Answer wanted = answer(q, k, one_segment);

  int on_disk = 0;
  for (const Storage storage : test::kEveryStorage) {
    const test::TestTiers tiers(storage);
    for (const std::int64_t segment_rows : {64, 333, 512, 1000}) {
      for (const std::int64_t resident : {1, 2, 7}) {
        SCOPED_TRACE(test::to_string(storage) + ", segments of " + std::to_string(segment_rows) + " rows, " +
                     std::to_string(resident) + " in memory");
        NegativeBank bank(tiers.get(), bank_options({kCapacity, kDim, at::kHalf, segment_rows}, storage, resident));
        fill(bank);
        on_disk += bank.segments_on(Tier::kDisk) > 0 ? 1 : 0;
        expect_same_bits(answer(q, k, bank), wanted);
        bank.prefetch();
        expect_same_bits(answer(q, k, bank), wanted);
      }
    }
  }
  EXPECT_GE(on_disk, 16);
}

TEST(InfoNce, KeepsItsGradientWhenTheBankChangesBeforeBackward) {
  const at::Tensor rows = normalised(700, 1);
  const test::TestTiers tiers(Storage::kThreads);
  NegativeBank bank(tiers.get(), bank_options({700, kDim, at::kHalf, 60}, Storage::kThreads));
  bank.enqueue(rows);
  const at::Tensor k = normalised(16, 3);
  const Answer wanted = answer(normalised(16, 2), k, bank);

  const at::Tensor q = normalised(16, 2).requires_grad_();
  const InfoNceResult result = info_nce(q, k, bank, 0.07);
  bank.enqueue(normalised(1000, 9));  // Replaces every row.
  result.loss.backward();
  EXPECT_TRUE(q.grad().equal(wanted.d_q));
  // The bank did change: otherwise nothing was tested.
  EXPECT_FALSE(answer(normalised(16, 2), k, bank).d_q.equal(wanted.d_q));
}

TEST(InfoNce, IsExactlyZeroOverAnEmptyBank) {
  MemoryBank memory(normalised(0, 1));
  const Answer got = answer(normalised(5, 2), normalised(5, 3), memory.bank);
  EXPECT_EQ(got.loss.item<double>(), 0.0);
  EXPECT_TRUE(got.rows.eq(0).all().item<bool>());
  EXPECT_TRUE(got.d_q.eq(0).all().item<bool>());
}

TEST(InfoNce, IsZeroForABatchWithoutRows) {
  MemoryBank memory(normalised(10, 1));
  const Answer got = answer(normalised(0, 2), normalised(0, 3), memory.bank);
  EXPECT_EQ(got.loss.item<double>(), 0.0);
  EXPECT_EQ(got.d_q.sizes(), (std::vector<std::int64_t>{0, kDim}));
}

TEST(InfoNce, KeepsTheGradientOfRowsThatAreAlmostSolved) {
  // The positive outweighs the negatives by e^20 and more: 1 - p(positive) vanishes in float32 beside p(positive), so
  // that a gradient computed as a difference with it would be noise.
  const at::Tensor q = normalised(8, 2).mul(2);
  const at::Tensor rows = normalised(50, 1).mul(0.1);
  MemoryBank memory(rows, at::kFloat);
  const double temperature = 0.15;
  const at::Tensor reference = q.to(at::kDouble).requires_grad_();
  dense_rows(reference, q.to(at::kDouble), rows.to(at::kDouble), temperature).mean().backward();
  const Answer got = answer(q, q, memory.bank, temperature);
  EXPECT_LT(got.rows.max().item<double>(), 1e-7);
  EXPECT_GT(got.rows.min().item<double>(), 0.0);
  const at::Tensor error = got.d_q.to(at::kDouble).sub(reference.grad()).norm(2, {1});
  EXPECT_LE(error.div(reference.grad().norm(2, {1})).max().item<double>(), 1e-4);
}

TEST(InfoNce, ScalesItsGradientByTheGradientThatComesIn) {
  MemoryBank memory(normalised(60, 1));
  const at::Tensor k = normalised(4, 3, at::kDouble);
  const Answer once = answer(normalised(4, 2, at::kDouble), k, memory.bank);
  const at::Tensor q = normalised(4, 2, at::kDouble).requires_grad_();
  info_nce(q, k, memory.bank, 0.07).loss.mul(1024).backward();
  EXPECT_TRUE(q.grad().equal(once.d_q.mul(1024)));
}

TEST(InfoNce, ComputesInFloatForHalfQueriesAndReturnsTheirDtype) {
  MemoryBank memory(normalised(60, 1), at::kHalf);
  const at::Tensor k = normalised(4, 3, at::kHalf);
  const Answer in_float = answer(normalised(4, 2, at::kHalf).to(at::kFloat), k, memory.bank);
  const Answer in_half = answer(normalised(4, 2, at::kHalf), k, memory.bank);
  EXPECT_TRUE(in_half.loss.equal(in_float.loss));
  EXPECT_EQ(in_half.loss.scalar_type(), at::kFloat);
  EXPECT_TRUE(in_half.d_q.equal(in_float.d_q.to(at::kHalf)));
}

TEST(InfoNce, GivesTheSameBitsUnderAutocast) {
  MemoryBank memory(normalised(600, 1), at::kHalf);
  const at::Tensor q = normalised(16, 2);
  const at::Tensor k = normalised(16, 3);
  const Answer wanted = answer(q, k, memory.bank);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const at::ScalarType under_autocast = q.matmul(k.t()).scalar_type();
  const Answer got = answer(q, k, memory.bank);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(under_autocast, at::kBFloat16);
  expect_same_bits(got, wanted);
}

TEST(InfoNce, RunsWithoutAGradient) {
  MemoryBank memory(normalised(60, 1));
  const at::Tensor q = normalised(4, 2);
  const at::Tensor k = normalised(4, 3);
  const Answer wanted = answer(q, k, memory.bank);
  EXPECT_TRUE(info_nce(q, k, memory.bank, 0.07).rows.equal(wanted.rows));
  const at::NoGradGuard no_grad;
  const InfoNceResult result = info_nce(q.clone().requires_grad_(), k, memory.bank, 0.07);
  EXPECT_TRUE(result.loss.equal(wanted.loss));
  EXPECT_FALSE(result.loss.requires_grad());
}

TEST(InfoNce, CarriesAGradientInItsLossAlone) {
  MemoryBank memory(normalised(60, 1));
  const InfoNceResult result = info_nce(normalised(4, 2).requires_grad_(), normalised(4, 3), memory.bank, 0.07);
  EXPECT_TRUE(result.loss.requires_grad());
  EXPECT_FALSE(result.rows.requires_grad());
  EXPECT_FALSE(result.lse.requires_grad());
  EXPECT_FALSE(result.d_log_scale.requires_grad());
}

TEST(InfoNce, GivesGradientsOfKeysAndTemperatureWhereTheseAskForThem) {
  MemoryBank memory(normalised(kTileRows + 30, 1));
  const auto loss = [&](const std::vector<at::Tensor>& inputs) {
    return info_nce(inputs[0], inputs[1], memory.bank, inputs[2]).loss.mul(3.0);
  };
  EXPECT_LE(test::gradient_error(
                loss, {normalised(3, 2, at::kDouble), normalised(3, 3, at::kDouble), at::full({}, 0.2, at::kDouble)}),
            1e-7);
}

TEST(InfoNce, LearnsTheLogarithmOfItsScale) {
  MemoryBank memory(normalised(60, 1));
  const at::Tensor q = normalised(4, 2, at::kDouble);
  const at::Tensor k = normalised(4, 3, at::kDouble);
  // In another dtype and shape than the loss, as a parameter may be.
  const at::Tensor log_scale = at::full({1}, 2.5, at::kFloat).requires_grad_();
  const InfoNceResult result = info_nce(q, k, memory.bank, log_scale.neg().exp());
  result.loss.backward();
  EXPECT_EQ(log_scale.grad().sizes(), (std::vector<std::int64_t>{1}));
  EXPECT_NEAR(log_scale.grad().item<double>(), result.d_log_scale.item<double>(), 1e-6);
}

TEST(InfoNce, GivesNoGradientOfTheKeysThatNobodyAskedFor) {
  MemoryBank memory(normalised(60, 1));
  const at::Tensor q = normalised(4, 2).requires_grad_();
  const at::Tensor k = normalised(4, 3);
  info_nce(q, k, memory.bank, 0.07).loss.backward();
  EXPECT_FALSE(k.grad().defined());
  EXPECT_TRUE(q.grad().equal(answer(normalised(4, 2), k, memory.bank).d_q));
}

TEST(InfoNce, CountsTheNegativesThatBeatThePositive) {
  const at::Tensor rows = normalised(2 * kTileRows + 9, 1, at::kDouble);
  MemoryBank memory(rows);
  const at::Tensor q = normalised(20, 2, at::kDouble);
  const at::Tensor k = normalised(20, 3, at::kDouble).add(q, 0.3);
  const at::Tensor wanted = q.matmul(rows.t()).gt(q.mul(k).sum(1, /*keepdim=*/true)).sum(1);
  const InfoNceOptions ranked{.rank_positives = true};
  EXPECT_TRUE(info_nce(q, k, memory.bank, 0.07, ranked).positive_ranks.equal(wanted));
  EXPECT_GT(wanted.max().item<std::int64_t>(), 0);
  EXPECT_FALSE(info_nce(q, k, memory.bank, 0.07).positive_ranks.defined());
  memory.bank.clear();
  EXPECT_TRUE(info_nce(q, k, memory.bank, 0.07, ranked).positive_ranks.equal(at::zeros({20}, at::kLong)));
}

TEST(InfoNce, RefusesToBeDifferentiatedTwice) {
  MemoryBank memory(normalised(60, 1));
  const at::Tensor q = normalised(4, 2).requires_grad_();
  const InfoNceResult result = info_nce(q, normalised(4, 3), memory.bank, 0.07);
  const auto first = torch::autograd::grad({result.loss}, {q}, {}, std::nullopt, /*create_graph=*/true);
  EXPECT_THAT([&] { first.at(0).pow(2).sum().backward(); },
              ThrowsMessage<c10::Error>(HasSubstr("info_nce has no second derivative")));
}

TEST(InfoNce, RefusesInputsThatDoNotFit) {
  MemoryBank memory(normalised(60, 1));
  const at::Tensor good = normalised(4, 2);
  const auto refused = [&](const at::Tensor& q, const at::Tensor& k, const Temperature& temperature, const char* text) {
    EXPECT_THAT([&] { (void)info_nce(q, k, memory.bank, temperature); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("info_nce"), HasSubstr(text))));
  };
  refused(random_rows(4, 16, 1), good, 0.07, "q is [4, 16] float on cpu, wanted [4, 24]");
  refused(good, normalised(5, 3), 0.07, "k is [5, 24] float on cpu, wanted [4, 24]");
  refused(good[0], good, 0.07, "q is [24]");
  refused(good.to(at::kLong), good, 0.07, "long");
  refused(at::Tensor(), good, 0.07, "q is undefined");
  refused(good, at::Tensor(), 0.07, "k is undefined");
  refused(good, good.to(at::kMeta), 0.07, "on meta");
  refused(good, good, 0.0, "temperature is 0");
  refused(good, good, -1.0, "temperature is -1");
  refused(good, good, std::numeric_limits<double>::quiet_NaN(), "temperature is nan");
  refused(good, good, at::full({}, -2.0), "temperature is -2");
  refused(good, good, at::full({2}, 0.1), "temperature is [2] float on cpu, wanted one");
  refused(good, good, at::full({}, 1, at::kLong), "temperature is [] long");
  refused(good, good, at::Tensor(), "temperature is nan");
}

}  // namespace
}  // namespace spillway::queue::streaming_loss_test

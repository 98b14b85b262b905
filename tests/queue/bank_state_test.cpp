// A bank's state, taken out and put into another one.
#include <limits>
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/bank_state.hpp>
#include <spillway/queue/streaming_loss.hpp>
#include <support/golden_torch.hpp>

namespace spillway::queue::bank_state_test {
namespace {

using test::contents;
using test::numbers;
using test::random_rows;
using test::Storage;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

BankOptions options(std::int64_t capacity, at::ScalarType dtype, std::int64_t segment_rows, Storage storage,
                    std::int64_t resident = 2) {
  test::BankShape shape{capacity, 6, dtype, segment_rows};
  shape.labels = true;
  return test::bank_options(shape, storage, resident);
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || a.equal(b));
}

void expect_same(const BankState& got, const BankState& wanted) {
  EXPECT_TRUE(same(got.rows.values, wanted.rows.values));
  EXPECT_TRUE(same(got.rows.scales, wanted.rows.scales));
  EXPECT_TRUE(same(got.rows.labels, wanted.rows.labels));
  EXPECT_EQ(got.capacity, wanted.capacity);
  EXPECT_EQ(got.position, wanted.position);
  EXPECT_EQ(got.counts.accepted_rows, wanted.counts.accepted_rows);
  EXPECT_EQ(got.counts.rejected_rows, wanted.counts.rejected_rows);
}

class State : public testing::TestWithParam<Storage> {
 protected:
  State() : tiers_(GetParam()) {}
  test::TestTiers tiers_;
};

INSTANTIATE_TEST_SUITE_P(Storage, State, testing::ValuesIn(test::kEveryStorage),
                         [](const auto& instance) { return test::to_string(instance.param); });

// Row 23 of the bugs of others: the bank, or its pointer, is missing after a resume.
TEST_P(State, GoesOnBitForBitOnAnotherSplitOfTheTiersAndInOtherSegments) {
  const auto file = test::GoldenFile::open("07_ring_trace");
  const at::Tensor batches = test::tensor(file, "batches");
  const std::int64_t saved_after = 7;
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kChar}) {
    SCOPED_TRACE(c10::toString(dtype));
    NegativeBank first(tiers_.get(), options(10, dtype, 3, GetParam()));
    std::int64_t next = 0;
    const auto enqueue = [&](NegativeBank& bank, std::int64_t step) {
      const std::int64_t rows = batches[step].item<std::int64_t>();
      bank.enqueue(random_rows(rows, 6, static_cast<std::uint64_t>(step)), numbers(step * 100, rows));
      return rows;
    };
    for (std::int64_t step = 0; step < saved_after; ++step) next += enqueue(first, step);
    const BankState state = take_state(first);
    EXPECT_EQ(state.position, next % 10);

    const test::TestTiers memory(Storage::kMemory);
    for (const std::int64_t segment_rows : test::kSegmentRows) {
      SCOPED_TRACE(segment_rows);
      NegativeBank resumed(memory.get(), options(10, dtype, segment_rows, Storage::kMemory));
      resumed.enqueue(random_rows(23, 6, 99), numbers(5, 23));  // Is forgotten.
      put_state(resumed, state);
      expect_same(take_state(resumed), state);
      NegativeBank back(tiers_.get(), options(10, dtype, segment_rows, GetParam(), 1));
      put_state(back, take_state(resumed));
      NegativeBank alike(memory.get(), options(10, dtype, 4, Storage::kMemory));
      put_state(alike, state);

      const at::Tensor q = random_rows(4, 6, 50);
      const at::Tensor k = random_rows(4, 6, 51);
      for (std::int64_t step = saved_after; step < batches.size(0); ++step) {
        EXPECT_TRUE(info_nce(q, k, back, 0.5).rows.equal(info_nce(q, k, alike, 0.5).rows));
        (void)enqueue(back, step);
        (void)enqueue(alike, step);
      }
      expect_same(take_state(back), take_state(alike));
    }
    for (std::int64_t step = saved_after; step < batches.size(0); ++step) next += enqueue(first, step);
    EXPECT_EQ(first.position(), next % 10);
  }
}

// Otherwise a resumed run moves other bytes than one that was not interrupted.
TEST_P(State, PutsRowsIntoTheSegmentsThatTheyWereIn) {
  for (const std::int64_t batches : {1, 3, 5, 8}) {  // In the middle of a segment, and after it wrapped there.
    NegativeBank first(tiers_.get(), options(20, at::kHalf, 7, GetParam()));
    for (std::int64_t batch = 0; batch < batches; ++batch) first.enqueue(random_rows(9, 6, 1), numbers(0, 9));
    NegativeBank second(tiers_.get(), options(20, at::kHalf, 7, GetParam()));
    put_state(second, take_state(first));
    for (std::int64_t step = 0; step < 12; ++step) {
      EXPECT_EQ(second.predicted_read_bytes_per_scan(), first.predicted_read_bytes_per_scan()) << step;
      for (const offload::Tier tier : {offload::Tier::kHost, offload::Tier::kDisk}) {
        EXPECT_EQ(second.segments_on(tier), first.segments_on(tier)) << step;
      }
      for (NegativeBank* const bank : {&first, &second}) bank->enqueue(random_rows(3, 6, 9), numbers(0, 3));
    }
    expect_same(take_state(second), take_state(first));
  }
}

TEST_P(State, OfAnEmptyBankEmptiesTheOther) {
  NegativeBank empty(tiers_.get(), options(10, at::kHalf, 3, GetParam()));
  NegativeBank full(tiers_.get(), options(10, at::kHalf, 3, GetParam()));
  full.enqueue(random_rows(30, 6, 1), numbers(0, 30));
  put_state(full, take_state(empty));
  EXPECT_EQ(full.size(), 0);
  EXPECT_EQ(full.position(), 0);
  EXPECT_EQ(full.counts().accepted_rows, 0U);
}

TEST_P(State, KeepsTheNewestRowsInASmallerBank) {
  NegativeBank large(tiers_.get(), options(40, at::kHalf, 7, GetParam()));
  at::Tensor rows = random_rows(35, 6, 1);
  rows[3][0].fill_(std::numeric_limits<float>::infinity());
  large.enqueue(rows, numbers(0, 35));
  NegativeBank small(tiers_.get(), options(12, at::kHalf, 5, GetParam()));
  put_state(small, take_state(large));
  EXPECT_TRUE(contents(small).equal(rows.narrow(0, 23, 12).to(at::kHalf).to(at::kFloat)));
  EXPECT_EQ(small.position(), 0);
  EXPECT_EQ(small.counts().accepted_rows, 34U);
  EXPECT_EQ(small.rejected_rows(), 1U);
}

TEST_P(State, IsShownInPiecesToo) {
  NegativeBank bank(tiers_.get(), options(50, at::kHalf, 7, GetParam()));
  const at::Tensor rows = random_rows(70, 6, 1, at::kHalf);
  bank.enqueue(rows, numbers(0, 70));
  at::Tensor values = rows.narrow(0, 0, 0);
  at::Tensor labels = numbers(0, 0);
  bank.scan_stored([&](const StoredRows& piece) {
    values = at::cat({values, piece.values});
    labels = at::cat({labels, piece.labels});
  });
  EXPECT_TRUE(values.equal(rows.narrow(0, 20, 50)));
  EXPECT_TRUE(labels.equal(numbers(20, 50)));
}

TEST(StateErrors, AreFoundBeforeAnythingIsChanged) {
  const test::TestTiers tiers(Storage::kMemory);
  NegativeBank source(tiers.get(), options(10, at::kHalf, 3, Storage::kMemory));
  source.enqueue(random_rows(8, 6, 1), numbers(0, 8));
  const BankState good = take_state(source);
  const auto refused = [&](const BankOptions& target, const BankState& state, const char* text) {
    NegativeBank bank(tiers.get(), target);
    const at::Tensor rows = random_rows(4, target.dim, 2);
    bank.enqueue(rows, target.labels ? numbers(0, 4) : at::Tensor());
    const BankState before = take_state(bank);
    EXPECT_THAT([&] { put_state(bank, state); }, ThrowsMessage<ConfigError>(AllOf(HasSubstr("bank"), HasSubstr(text))));
    expect_same(take_state(bank), before);
  };
  refused(options(10, at::kFloat, 3, Storage::kMemory), good, "wanted [n, 6] Float");
  refused(options(10, at::kChar, 3, Storage::kMemory), good, "Char, [n] Float");
  refused(test::bank_options({10, 6, at::kHalf, 3}, Storage::kMemory), good, "no labels");
  refused(test::bank_options({10, 7, at::kHalf, 3}, Storage::kMemory), good, "wanted [n, 7]");
  BankState damaged = good;
  damaged.position = 10;
  refused(options(10, at::kHalf, 3, Storage::kMemory), damaged, "position 10");
  damaged = good;
  damaged.capacity = 7;
  refused(options(10, at::kHalf, 3, Storage::kMemory), damaged, "8 rows");
  damaged = good;
  damaged.rows.labels = numbers(0, 7);
  refused(options(10, at::kHalf, 3, Storage::kMemory), damaged, "labels [7]");
}

}  // namespace
}  // namespace spillway::queue::bank_state_test

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <spillway/offload/error.hpp>
#include <support/golden_torch.hpp>

namespace spillway::queue::negative_bank_test {
namespace {

using offload::Tier;
using test::bank_options;
using test::contents;
using test::ids;
using test::random_rows;
using test::Storage;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

class Bank : public testing::TestWithParam<Storage> {
 protected:
  Bank() : tiers_(GetParam()) {}

  [[nodiscard]] bool on_disk() const { return GetParam() != Storage::kMemory; }

  test::TestTiers tiers_;
};

INSTANTIATE_TEST_SUITE_P(Storage, Bank, testing::ValuesIn(test::kEveryStorage),
                         [](const auto& instance) { return test::to_string(instance.param); });

/// The rows by their place in a ring of `capacity` places; -1 where there is none.
at::Tensor by_place(NegativeBank& bank) {
  const std::int64_t capacity = bank.capacity();
  const at::Tensor in_order = contents(bank).squeeze(1).to(at::kLong);
  at::Tensor places = at::full({capacity}, -1, at::TensorOptions(at::kLong));
  for (std::int64_t row = 0; row < bank.size(); ++row) {
    places[(bank.position() - bank.size() + row + capacity) % capacity].fill_(in_order[row]);
  }
  return places;
}

/// The whole trace on one bank. @returns the most segments that were on disk after a batch.
std::int64_t follow_golden_trace(NegativeBank& bank, const test::GoldenFile& file) {
  const at::Tensor batches = test::tensor(file, "batches");
  std::int64_t next_id = 0;
  std::int64_t most_on_disk = 0;
  for (std::int64_t i = 0; i < batches.size(0); ++i) {
    SCOPED_TRACE(i);
    const std::int64_t rows = batches[i].item<std::int64_t>();
    bank.enqueue(ids(next_id, rows));
    next_id += rows;
    most_on_disk = std::max(most_on_disk, bank.segments_on(Tier::kDisk));
    EXPECT_EQ(bank.position(), test::tensor(file, "ptr_after")[i].item<std::int64_t>());
    EXPECT_EQ(bank.size(), test::tensor(file, "count_after")[i].item<std::int64_t>());
    EXPECT_EQ(bank.counts().accepted_rows, static_cast<std::uint64_t>(next_id));
    const at::Tensor wanted = test::tensor(file, "oldest_to_newest_after")[i].narrow(0, 0, bank.size());
    EXPECT_TRUE(contents(bank).squeeze(1).to(at::kLong).equal(wanted)) << wanted;
    EXPECT_TRUE(by_place(bank).equal(test::tensor(file, "bank_after")[i]));
  }
  return most_on_disk;
}

// Rows 2 and 28 of the bugs of others: batches larger than the bank, and a full bank that seems empty.
TEST_P(Bank, FollowsTheGoldenRingTrace) {
  const auto file = test::GoldenFile::open("07_ring_trace");
  const std::int64_t capacity = test::tensor(file, "capacity").item<std::int64_t>();
  for (const std::int64_t segment_rows : {1, 2, 7, 64, 4096}) {
    for (const std::int64_t resident : {1, 2, 4}) {
      SCOPED_TRACE(std::to_string(segment_rows) + " rows a segment, " + std::to_string(resident) + " in memory");
      NegativeBank bank(tiers_.get(), bank_options({capacity, 1, at::kFloat, segment_rows}, GetParam(), resident));
      const std::int64_t most_on_disk = follow_golden_trace(bank, file);
      if (segment_rows <= 2 && resident <= 2) {
        EXPECT_EQ(most_on_disk > 0, on_disk());
      }
    }
  }
}

TEST_P(Bank, TakesTheKeysOfTwoRanksInRankOrderAsTheGoldenTraceDoes) {
  const auto file = test::GoldenFile::open("07_ring_trace");
  const at::Tensor steps = test::tensor(file, "rank_steps");
  const std::int64_t capacity = test::tensor(file, "capacity").item<std::int64_t>();
  for (const std::int64_t segment_rows : test::kSegmentRows) {
    SCOPED_TRACE(segment_rows);
    NegativeBank bank(tiers_.get(), bank_options({capacity, 1, at::kFloat, segment_rows}, GetParam(), 1));
    std::int64_t next_id = 0;
    for (std::int64_t i = 0; i < steps.size(0); ++i) {
      const std::int64_t rows = steps[i].sum().item<std::int64_t>();
      bank.enqueue(ids(next_id, rows));
      next_id += rows;
      EXPECT_EQ(bank.position(), test::tensor(file, "rank_ptr_after")[i].item<std::int64_t>());
      EXPECT_TRUE(by_place(bank).equal(test::tensor(file, "rank_bank_after")[i])) << i;
    }
  }
}

// Row 1 of the bugs of others: a last batch that is smaller than the others.
TEST_P(Bank, TakesAnEpochWhoseLastBatchIsSmaller) {
  NegativeBank bank(tiers_.get(), bank_options({65'536, 1, at::kFloat, 4'096}, GetParam()));
  const std::int64_t samples = 128 * 390 + 80;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (std::int64_t first = 0; first < samples; first += 128) {
      bank.enqueue(ids(epoch * samples + first, std::min<std::int64_t>(128, samples - first)));
    }
  }
  EXPECT_EQ(bank.position(), 2 * samples % 65'536);
  EXPECT_TRUE(contents(bank).equal(ids(2 * samples - 65'536, 65'536)));
}

TEST_P(Bank, StartsEmptyAndEndsEmptyWhenCleared) {
  NegativeBank bank(tiers_.get(), bank_options({20, 4, at::kHalf, 3}, GetParam()));
  EXPECT_EQ(bank.size(), 0);
  EXPECT_EQ(contents(bank).size(0), 0);
  bank.enqueue(random_rows(20, 4, 1));
  bank.prefetch();
  bank.clear();
  EXPECT_EQ(bank.size(), 0);
  EXPECT_EQ(bank.position(), 0);
  EXPECT_EQ(bank.predicted_read_bytes_per_scan(), 0U);
  EXPECT_EQ(contents(bank).size(0), 0);
  const at::Tensor rows = random_rows(20, 4, 2);
  bank.enqueue(rows);
  EXPECT_TRUE(contents(bank).equal(rows.to(at::kHalf).to(at::kFloat)));
}

TEST_P(Bank, CutsTilesFromTheOldestValidRowOnWhateverTheSegmentsAre) {
  for (const std::int64_t segment_rows : {1, 7, 64, 511, 4096}) {
    SCOPED_TRACE(segment_rows);
    NegativeBank bank(tiers_.get(), bank_options({2 * kTileRows + 10, 1, at::kFloat, segment_rows}, GetParam()));
    bank.enqueue(ids(0, 300));
    bank.enqueue(ids(300, 2 * kTileRows));
    std::vector<std::int64_t> sizes;
    std::int64_t next_id = 290;
    bank.scan(at::kFloat, [&](const BankTile& tile) {
      const at::Tensor& rows = tile.rows;
      sizes.push_back(rows.size(0));
      EXPECT_EQ(tile.first, next_id - 290);
      EXPECT_FALSE(tile.labels.defined());
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(rows.data_ptr()) % 64, 0U);
      EXPECT_TRUE(rows.is_contiguous());
      EXPECT_TRUE(rows.equal(ids(next_id, rows.size(0))));
      next_id += rows.size(0);
    });
    EXPECT_THAT(sizes, ElementsAre(kTileRows, kTileRows, 10));
  }
}

TEST_P(Bank, ConvertsRowsOfEveryDtype) {
  for (const at::ScalarType stored : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    for (const at::ScalarType given : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
      for (const at::ScalarType wanted : {at::kFloat, at::kDouble}) {
        SCOPED_TRACE(std::string(c10::toString(given)) + " -> " + c10::toString(stored) + " -> " +
                     c10::toString(wanted));
        NegativeBank bank(tiers_.get(), bank_options({40, 5, stored, 3}, GetParam()));
        const at::Tensor rows = random_rows(33, 5, 3, given);
        bank.enqueue(rows);
        const at::Tensor got = contents(bank, wanted);
        EXPECT_EQ(got.scalar_type(), wanted);
        EXPECT_TRUE(got.equal(rows.to(stored).to(wanted)));
      }
    }
  }
}

TEST_P(Bank, TakesKeysThatAreNotContiguousOrCarryAHistory) {
  NegativeBank bank(tiers_.get(), bank_options({10, 3, at::kFloat, 2}, GetParam()));
  const at::Tensor wide = random_rows(4, 6, 1).requires_grad_();
  const at::Tensor keys = wide.mul(2).slice(1, 0, 6, 2);
  bank.enqueue(keys);
  EXPECT_TRUE(contents(bank).equal(keys.detach()));
  EXPECT_FALSE(contents(bank).requires_grad());
}

TEST_P(Bank, RefusesKeysOfAnotherKindAndKeepsWhatItHas) {
  NegativeBank bank(tiers_.get(), bank_options({10, 128, at::kHalf, 2}, GetParam()));
  const at::Tensor rows = random_rows(7, 128, 1);
  bank.enqueue(rows);
  const auto refused = [&](const at::Tensor& keys, const char* got) {
    EXPECT_THAT([&] { bank.enqueue(keys); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr(got), HasSubstr("wanted [n, 128]"), HasSubstr("bank"))));
  };
  refused(random_rows(4, 64, 1), "[4, 64] float on cpu");
  refused(random_rows(4, 128, 1).flatten(), "[512] float");
  refused(random_rows(4, 128, 1).to(at::kLong), "[4, 128] long");
  refused(random_rows(4, 128, 1).to(at::kMeta), "on meta");
  refused(at::Tensor(), "undefined");
  EXPECT_EQ(bank.size(), 7);
  EXPECT_TRUE(contents(bank).equal(rows.to(at::kHalf).to(at::kFloat)));
}

// Row 29 of the bugs of others: NaN keys that stay in the bank until they are pushed out.
TEST_P(Bank, DropsRowsThatAreNotFiniteAsStoredAndSaysSoOnce) {
  NegativeBank bank(tiers_.get(), bank_options({20, 3, at::kHalf, 2}, GetParam()));
  at::Tensor rows = random_rows(8, 3, 1);
  rows[2][1].fill_(std::numeric_limits<float>::quiet_NaN());
  rows[5][0].fill_(-std::numeric_limits<float>::infinity());
  rows[7][2].fill_(70'000.0F);  // Finite, but infinite as float16.
  bank.enqueue(rows);
  EXPECT_EQ(bank.rejected_rows(), 3U);
  EXPECT_EQ(bank.size(), 5);
  EXPECT_EQ(bank.position(), 5);
  const at::Tensor kept = at::cat({rows.narrow(0, 0, 2), rows.narrow(0, 3, 2), rows.narrow(0, 6, 1)});
  EXPECT_TRUE(contents(bank).equal(kept.to(at::kHalf).to(at::kFloat)));

  bank.enqueue(rows.narrow(0, 2, 1));
  EXPECT_EQ(bank.rejected_rows(), 4U);
  EXPECT_THAT(tiers_.lines(),
              ElementsAre(AllOf(HasSubstr("bank"), HasSubstr("row 2 of a batch of 8"), HasSubstr("3 such rows"))));
}

TEST_P(Bank, ReadsEachSegmentOnDiskOncePerScan) {
  NegativeBank bank(tiers_.get(), bank_options({100, 8, at::kFloat, 9}, GetParam()));
  bank.enqueue(random_rows(95, 8, 1));
  bank.flush();
  const auto& read = tiers_.get()->stats().read_bytes;
  const std::uint64_t cold = static_cast<std::uint64_t>(bank.segments_on(Tier::kDisk));
  EXPECT_EQ(cold > 0, on_disk());
  EXPECT_EQ(bank.predicted_read_bytes_per_scan(), cold * 4096);
  for (std::uint64_t scan = 1; scan <= 3; ++scan) {
    bank.prefetch();
    bank.prefetch();  // Announcing twice reads nothing twice.
    (void)contents(bank);
    EXPECT_EQ(read.load(), scan * cold * 4096);
  }
}

TEST_P(Bank, GoesOnAfterAScanThatWasBrokenOff) {
  const at::Tensor rows = random_rows(2000, 2, 1);
  const auto broken_scan = [](NegativeBank& bank) {
    int tiles = 0;
    EXPECT_THROW(bank.scan(at::kFloat,
                           [&](const BankTile&) {
                             if (++tiles == 2) throw std::runtime_error("enough");
                           }),
                 std::runtime_error);
  };
  NegativeBank bank(tiers_.get(), bank_options({2000, 2, at::kFloat, 100}, GetParam()));
  bank.enqueue(rows);
  broken_scan(bank);
  EXPECT_TRUE(contents(bank).equal(rows));
  broken_scan(bank);
  bank.enqueue(rows.narrow(0, 0, 350));  // Drops segments that the broken scan had announced and not read.
  EXPECT_TRUE(contents(bank).equal(at::cat({rows.narrow(0, 350, 1650), rows.narrow(0, 0, 350)})));
  broken_scan(bank);
  bank.clear();
  EXPECT_EQ(contents(bank).size(0), 0);
}

TEST_P(Bank, SurvivesAnEnqueueBetweenPrefetchAndScan) {
  NegativeBank bank(tiers_.get(), bank_options({50, 2, at::kFloat, 5}, GetParam()));
  at::Tensor all = random_rows(50, 2, 1);
  bank.enqueue(all);
  for (const std::int64_t batch : {1, 5, 13, 50, 70}) {
    const at::Tensor rows = random_rows(batch, 2, static_cast<std::uint64_t>(batch));
    bank.prefetch();
    bank.enqueue(rows);
    all = at::cat({all, rows});
    EXPECT_TRUE(contents(bank).equal(all.narrow(0, all.size(0) - 50, 50)));
  }
}

TEST_P(Bank, TakesNoMoreOfTheTiersThanItSaid) {
  const BankOptions options = bank_options({100, 8, at::kFloat, 9}, GetParam());
  const BankPlacement placement = place_bank(options);
  {
    NegativeBank bank(tiers_.get(), options);
    for (std::uint64_t i = 0; i < 30; ++i) {
      bank.enqueue(random_rows(17, 8, i));
      (void)contents(bank);
    }
    EXPECT_EQ(tiers_.get()->host().peak_bytes(), placement.host_bytes());
    EXPECT_EQ(tiers_.get()->disk().peak_bytes(), placement.disk_bytes);
  }
  EXPECT_EQ(tiers_.get()->host().used_bytes(), 0U);
  EXPECT_EQ(tiers_.get()->disk().used_bytes(), 0U);
}

TEST(BankBudget, IsThatOfTheTiersToo) {
  const BankOptions options = bank_options({100, 8, at::kFloat, 9}, Storage::kMemory);
  const BankPlacement placement = place_bank(options);
  const test::TestTiers exact(Storage::kMemory, placement.host_bytes());
  EXPECT_NO_THROW(NegativeBank(exact.get(), options));
  const test::TestTiers short_of_a_byte(Storage::kMemory, placement.host_bytes() - 1);
  EXPECT_THROW(NegativeBank(short_of_a_byte.get(), options), BudgetExceeded);
  EXPECT_THAT(exact.lines(), IsEmpty());
}

TEST(BankBudget, HasToHoldTheWiderTileOfAScanInDouble) {
  const BankOptions options = bank_options({1000, 8, at::kHalf, 9}, Storage::kMemory);
  const test::TestTiers exact(Storage::kMemory, place_bank(options).host_bytes());
  NegativeBank bank(exact.get(), options);
  const at::Tensor rows = random_rows(30, 8, 1, at::kHalf);
  bank.enqueue(rows);
  EXPECT_THROW((void)contents(bank, at::kDouble), BudgetExceeded);
  EXPECT_TRUE(contents(bank).equal(rows.to(at::kFloat)));  // It is as before.
}

}  // namespace
}  // namespace spillway::queue::negative_bank_test

// What ranks that have a bank in common must agree on, and what they may take up; the ranks are threads.
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <queue/rank_fixture.hpp>
#include <spillway/distributed/collective.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/rank_bank.hpp>

namespace spillway::queue::rank_bank_limits_test {
namespace {

using distributed::Collective;
using test::contents;
using test::ids;
using test::on_ranks;
using test::random_rows;
using test::Storage;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// A bank of one element a row, in memory.
RankBankOptions sharing(BankSharing how, std::vector<std::int64_t> weights = {}) {
  return {test::bank_options({30, 1, at::kFloat, 4}, Storage::kMemory), how, std::move(weights)};
}

TEST(RankErrors, NameWhatTheRanksDisagreeOn) {
  const auto disagreeing = [](auto change, const std::string& text) {
    on_ranks(3, [&](Collective& ranks) {
      const test::TestTiers tiers(Storage::kMemory);
      RankBankOptions options = sharing(BankSharing::kSharded);
      if (ranks.rank() == 2) change(options);
      EXPECT_THAT([&] { RankBank bank(tiers.get(), options, ranks); },
                  ThrowsMessage<ConfigError>(AllOf(HasSubstr("the ranks disagree on " + text), HasSubstr("rank 2"))));
    });
  };
  disagreeing([](RankBankOptions& o) { o.bank.capacity = 31; }, "capacity:");
  disagreeing([](RankBankOptions& o) { o.bank.capacity_max = 31; }, "capacity_max:");
  disagreeing([](RankBankOptions& o) { o.bank.dim = 2; }, "dim:");
  disagreeing([](RankBankOptions& o) { o.bank.dtype = at::kHalf; }, "dtype:");
  disagreeing([](RankBankOptions& o) { o.bank.labels = true; }, "labels:");
  disagreeing([](RankBankOptions& o) { o.sharing = BankSharing::kReplicated; }, "sharing:");
  disagreeing([](RankBankOptions& o) { o.weights = {1, 1, 1}; }, "the number of weights:");
}

TEST(RankErrors, AreThoseOfEveryRankWhereOneFails) {
  on_ranks(2, [](Collective& ranks) {
    const bool fails = ranks.rank() == 1;
    {
      // Row 4: a rank that disagrees on the dimension has to raise on all of them.
      const test::TestTiers tiers(Storage::kMemory);
      RankBank bank(tiers.get(), sharing(BankSharing::kReplicated), ranks);
      bank.enqueue(ids(ranks.rank() * 3, 3));
      EXPECT_THAT([&] { bank.enqueue(random_rows(3, fails ? 2 : 1, 1)); },
                  ThrowsMessage<Error>(HasSubstr(fails ? "wanted [n, 1]" : "rank 1 could not enqueue its keys")));
      EXPECT_TRUE(contents(bank.local()).equal(ids(0, 6)));
      bank.enqueue(ids(6 + ranks.rank(), 1));  // All is as it was.
      EXPECT_TRUE(contents(bank.local()).equal(ids(0, 8)));
      EXPECT_THAT([&] { bank.resize(31); }, ThrowsMessage<ConfigError>(HasSubstr("1 to 30")));
    }
    {
      const RankBankOptions options = sharing(BankSharing::kReplicated);
      const test::TestTiers tiers(Storage::kMemory, fails ? 100 : offload::kUnlimitedBytes);
      EXPECT_THAT([&] { RankBank bank(tiers.get(), options, ranks); },
                  ThrowsMessage<Error>(HasSubstr(fails ? "bank" : "rank 1 could not make its part")));
    }
    {
      const test::TestTiers tiers(Storage::kMemory);
      RankBankOptions options = sharing(BankSharing::kSharded, {0, 0});
      EXPECT_THAT([&] { RankBank bank(tiers.get(), options, ranks); },
                  ThrowsMessage<ConfigError>(HasSubstr("weights")));
    }
    {
      // Different losses over one bank.
      const test::TestTiers tiers(Storage::kMemory);
      RankBank bank(tiers.get(), sharing(BankSharing::kSharded), ranks);
      const at::Tensor q = random_rows(2, 1, 1, fails ? at::kDouble : at::kFloat);
      EXPECT_THAT([&] { (void)info_nce(q, q, bank.local(), 1.0, bank.loss_options()); },
                  ThrowsMessage<Error>(HasSubstr("different losses")));
    }
  });
}

// The setting of the recipe: 65,536 keys of 2,048 float16 elements on 4 ranks are 64 MiB on each.
TEST(RankBudget, TakesNoMoreThanFivePercentBesideItsRows) {
  constexpr std::int64_t kRows = 65'536;
  constexpr std::int64_t kDim = 2'048;
  constexpr double kShareBytes = kRows * kDim * 2 / 4;
  on_ranks(4, [&](Collective& ranks) {
    const test::TestTiers tiers(Storage::kMemory, static_cast<std::uint64_t>(1.05 * kShareBytes));
    RankBankOptions options;
    options.bank.capacity = kRows;
    options.bank.dim = kDim;
    options.bank.segment_rows = 128;
    options.bank.host_bytes = tiers.get()->host().limit_bytes();
    options.sharing = BankSharing::kSharded;
    RankBank bank(tiers.get(), options, ranks);
    const at::Tensor keys = random_rows(256, kDim, static_cast<std::uint64_t>(ranks.rank()), at::kHalf);
    for (std::int64_t step = 0; step < kRows / 1024 + 1; ++step) bank.enqueue(keys);
    EXPECT_EQ(bank.size(), kRows);
    EXPECT_EQ(bank.local().size(), kRows / 4);
    const at::Tensor q = random_rows(2, kDim, 9);
    EXPECT_TRUE(info_nce(q, q, bank.local(), 100.0, bank.loss_options()).rows.isfinite().all().item<bool>());
    EXPECT_LE(static_cast<double>(tiers.get()->host().peak_bytes()), 1.05 * kShareBytes);
    EXPECT_GE(static_cast<double>(tiers.get()->host().peak_bytes()), kShareBytes);
  });
}

}  // namespace
}  // namespace spillway::queue::rank_bank_limits_test

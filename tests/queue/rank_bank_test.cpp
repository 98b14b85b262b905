// Banks that ranks have in common; the ranks are threads.
#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <queue/rank_fixture.hpp>
#include <spillway/distributed/collective.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/rank_bank.hpp>
#include <support/golden_torch.hpp>
#include <support/property.hpp>

namespace spillway::queue::rank_bank_test {
namespace {

using distributed::Collective;
using test::contents;
using test::ids;
using test::on_ranks;
using test::random_rows;
using test::Storage;
using test::tensor;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RankBankOptions sharing(BankSharing how, std::int64_t capacity, std::int64_t segment_rows, Storage storage,
                        std::vector<std::int64_t> weights = {}) {
  return {test::bank_options({capacity, 1, at::kFloat, segment_rows}, storage), how, std::move(weights)};
}

/// Room for a bank of any part: the share decides how much of it is on disk.
RankBankOptions roomy(RankBankOptions options) {
  options.bank.host_bytes = offload::kUnlimitedBytes;
  return options;
}

Storage storage_of(const Collective& ranks) { return test::kEveryStorage[static_cast<std::size_t>(ranks.rank()) % 3]; }

// Row 11 of the bugs of others: queues that differ from rank to rank, as each puts its own keys first.
TEST(Replicated, FollowsTheGoldenTraceOfTwoRanksAndIsEqualOnAll) {
  const auto file = test::GoldenFile::open("07_ring_trace");
  const at::Tensor steps = tensor(file, "rank_steps");
  for (const std::int64_t segment_rows : test::kSegmentRows) {
    on_ranks(2, [&](Collective& ranks) {
      const test::TestTiers tiers(storage_of(ranks));
      RankBank bank(tiers.get(), sharing(BankSharing::kReplicated, 10, segment_rows, storage_of(ranks)), ranks);
      std::int64_t next = 0;
      for (std::int64_t i = 0; i < steps.size(0); ++i) {
        const auto of_0 = steps[i][0].item<std::int64_t>();
        const auto of_1 = steps[i][1].item<std::int64_t>();
        bank.enqueue(ranks.rank() == 0 ? ids(next, of_0) : ids(next + of_0, of_1));
        next += of_0 + of_1;
        EXPECT_EQ(bank.local().position(), tensor(file, "rank_ptr_after")[i].item<std::int64_t>());
        const at::Tensor wanted = tensor(file, "rank_bank_after")[i];
        const at::Tensor in_order = contents(bank.local()).squeeze(1).to(at::kLong);
        for (std::int64_t row = 0; row < bank.size(); ++row) {
          const std::int64_t place = (bank.local().position() - bank.size() + row + 10) % 10;
          EXPECT_EQ(in_order[row].item<std::int64_t>(), wanted[place].item<std::int64_t>());
        }
      }
    });
  }
}

// Rows 3, 4 and 13: unequal batches. The golden data is that of one process with the whole batch.
TEST(Shared, GivesTheGoldenLossOfThreeAndFiveRowsAndTheGoldenBank) {
  const auto file = test::GoldenFile::open("12_dist_uneven_3_5");
  const auto unit = [](const at::Tensor& rows) { return rows.div(rows.norm(2, {1}, true)); };
  const at::Tensor q = unit(tensor(file, "x0").matmul(tensor(file, "W").t()));
  const at::Tensor k = unit(tensor(file, "x1").matmul(tensor(file, "W").t()));
  const at::Tensor places = tensor(file, "bank");
  const at::Tensor in_order = at::cat({places.narrow(0, 9, 2), places.narrow(0, 0, 9)});  // The next place is 9.
  for (const BankSharing how : {BankSharing::kReplicated, BankSharing::kSharded}) {
    for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{3, 5}, {1, 7}, {0, 8}, {3, 0, 5}}) {
      on_ranks(static_cast<int>(sizes.size()), [&](Collective& ranks) {
        std::int64_t first = 0;
        for (int rank = 0; rank < ranks.rank(); ++rank) first += sizes[static_cast<std::size_t>(rank)];
        const std::int64_t own = sizes[static_cast<std::size_t>(ranks.rank())];
        const test::TestTiers tiers(Storage::kMemory);
        RankBank bank(tiers.get(), {test::bank_options({11, 8, at::kDouble, 4}, Storage::kMemory), how, {}}, ranks);
        bank.enqueue(ranks.rank() == 0 ? in_order : in_order.narrow(0, 0, 0));
        const InfoNceResult result = info_nce(q.narrow(0, first, own), k.narrow(0, first, own), bank.local(),
                                              test::scalar(file, "T"), bank.loss_options());
        const at::Tensor wanted = tensor(file, "moco.loss_rows").narrow(0, first, own);
        EXPECT_TRUE(result.rows.allclose(wanted, 0, 1e-12)) << result.rows << wanted;
        bank.enqueue(k.narrow(0, first, own));
        if (how != BankSharing::kReplicated) return;
        const at::Tensor after = tensor(file, "moco.bank_after_enqueue");
        const auto pointer = tensor(file, "moco.ptr_after").item<std::int64_t>();
        EXPECT_TRUE(
            contents(bank.local(), at::kDouble)
                .allclose(at::cat({after.narrow(0, pointer, 11 - pointer), after.narrow(0, 0, pointer)}), 0, 1e-12));
      });
    }
  }
}

/// All parts of a sharded bank in the order in which their rows entered: ids are their numbers.
at::Tensor all_parts(RankBank& bank, Collective& ranks) {
  return std::get<0>(at::cat(ranks.all_gather(contents(bank.local()))).squeeze(1).sort());
}

TEST(Sharded, HoldsExactlyTheNewestRowsOfAllRanksBetweenThem) {
  test::for_random_seeds(12, [](test::Random& random) {
    const int world_size = static_cast<int>(random.between(1, 4));
    std::vector<std::int64_t> weights;
    for (int rank = 0; rank < world_size; ++rank) weights.push_back(static_cast<std::int64_t>(random.between(1, 3)));
    if (world_size > 1 && random.chance(1, 3)) weights[0] = 0;
    const auto longest = static_cast<std::int64_t>(random.between(1, 60));
    struct Step {
      std::vector<std::int64_t> rows;  // Of each rank.
      std::int64_t capacity;
    };
    std::vector<Step> steps(12);
    for (Step& step : steps) {
      for (int rank = 0; rank < world_size; ++rank) {
        step.rows.push_back(static_cast<std::int64_t>(random.below(random.chance(1, 5) ? 90 : 12)));
      }
      step.capacity =
          random.chance(1, 3) ? static_cast<std::int64_t>(random.between(1, static_cast<std::uint64_t>(longest))) : 0;
    }
    on_ranks(world_size, [&](Collective& ranks) {
      const test::TestTiers tiers(storage_of(ranks));
      RankBank bank(tiers.get(), roomy(sharing(BankSharing::kSharded, longest, 3, storage_of(ranks), weights)), ranks);
      std::int64_t next = 0;
      std::int64_t valid = 0;
      for (const Step& step : steps) {
        if (step.capacity > 0) bank.resize(step.capacity);
        valid = std::min(valid, bank.capacity());
        std::int64_t first = next;
        for (int rank = 0; rank < ranks.rank(); ++rank) first += step.rows[static_cast<std::size_t>(rank)];
        bank.enqueue(ids(first, step.rows[static_cast<std::size_t>(ranks.rank())]));
        for (const std::int64_t rows : step.rows) {
          next += rows;
          valid += rows;
        }
        valid = std::min(valid, bank.capacity());
        EXPECT_EQ(bank.size(), valid);
        EXPECT_TRUE(all_parts(bank, ranks).equal(ids(next - valid, valid).squeeze(1)));
      }
    });
  });
}

// Row 25: ranks with budgets of 1 : 2.
TEST(Sharded, SplitsByWeight) {
  on_ranks(2, [](Collective& ranks) {
    const std::int64_t mine = ranks.rank() == 0 ? 1000 : 2000;
    RankBankOptions options = sharing(BankSharing::kSharded, 3000, 50, Storage::kMemory, {1, 2});
    const BankOptions part = test::bank_options({mine, 1, at::kFloat, 50}, Storage::kMemory);
    options.bank.host_bytes = place_bank(part).host_bytes();
    const test::TestTiers tiers(Storage::kMemory, options.bank.host_bytes);  // Exactly what the part takes.
    RankBank bank(tiers.get(), options, ranks);
    for (std::int64_t step = 0; step < 10; ++step) bank.enqueue(ids(step * 700 + ranks.rank() * 350, 350));
    EXPECT_EQ(bank.local().size(), mine);
    EXPECT_EQ(bank.size(), 3000);
    EXPECT_TRUE(all_parts(bank, ranks).equal(ids(4000, 3000).squeeze(1)));
  });
}

/// What one bank that holds everything says about the queries of all ranks.
struct Reference {
  at::Tensor rows, d_q;
};

TEST(Sharded, GivesLossAndGradientOfOneBank) {
  constexpr std::int64_t kDim = 9;
  const at::Tensor keys = random_rows(1500, kDim, 1, at::kDouble);
  const at::Tensor q = random_rows(10, kDim, 2, at::kDouble);
  const at::Tensor k = random_rows(10, kDim, 3, at::kDouble);
  const at::Tensor labels = at::arange(1500, at::TensorOptions(at::kLong)).remainder(7);
  const at::Tensor q_labels = at::arange(10, at::TensorOptions(at::kLong)).remainder(7);
  test::BankShape shape{1200, kDim, at::kDouble, 64};
  shape.labels = true;
  const test::TestTiers one_tiers(Storage::kMemory);
  NegativeBank one(one_tiers.get(), test::bank_options(shape, Storage::kMemory));
  one.enqueue(keys, labels);
  for (const bool masked : {false, true}) {
    InfoNceOptions options{.query_labels = masked ? q_labels : at::Tensor(), .rank_positives = true};
    const at::Tensor whole = q.clone().requires_grad_();
    const InfoNceResult wanted = info_nce(whole, k, one, 0.3, options);
    wanted.loss.mul(10).backward();  // The sum over the rows.
    for (const int world_size : {1, 2, 3}) {
      const std::vector<std::int64_t> sizes = world_size == 1   ? std::vector<std::int64_t>{10}
                                              : world_size == 2 ? std::vector<std::int64_t>{0, 10}
                                                                : std::vector<std::int64_t>{2, 7, 1};
      on_ranks(world_size, [&](Collective& ranks) {
        const test::TestTiers tiers(storage_of(ranks));
        RankBankOptions sharded{test::bank_options(shape, storage_of(ranks)), BankSharing::kSharded, {}};
        RankBank bank(tiers.get(), roomy(std::move(sharded)), ranks);
        const bool first_rank = ranks.rank() == 0;
        bank.enqueue(first_rank ? keys : keys.narrow(0, 0, 0), first_rank ? labels : labels.narrow(0, 0, 0));
        std::int64_t first = 0;
        for (int rank = 0; rank < ranks.rank(); ++rank) first += sizes[static_cast<std::size_t>(rank)];
        const std::int64_t own = sizes[static_cast<std::size_t>(ranks.rank())];
        const at::Tensor leaf = q.narrow(0, first, own).clone().requires_grad_();
        InfoNceOptions mine = options;
        if (masked) mine.query_labels = q_labels.narrow(0, first, own);
        const InfoNceResult got = info_nce(leaf, k.narrow(0, first, own), bank.local(), 0.3, bank.loss_options(mine));
        got.loss.mul(static_cast<double>(own)).backward();
        EXPECT_TRUE(got.rows.allclose(wanted.rows.narrow(0, first, own), 0, 1e-12));
        EXPECT_TRUE(got.positive_ranks.equal(wanted.positive_ranks.narrow(0, first, own)));
        EXPECT_TRUE(leaf.grad().allclose(whole.grad().narrow(0, first, own), 0, 1e-12));
      });
    }
  }
}

TEST(Sharded, GivesTheGoldenLossOfFourUnequalParts) {
  const auto file = test::GoldenFile::open("20_sharded_bank");
  const at::Tensor parts = tensor(file, "shard_rows");
  for (const std::int64_t segment_rows : test::kSegmentRows) {
    on_ranks(4, [&](Collective& ranks) {
      std::int64_t first = 0;
      for (int rank = 0; rank < ranks.rank(); ++rank) first += parts[rank].item<std::int64_t>();
      const test::TestTiers tiers(storage_of(ranks));
      NegativeBank part(tiers.get(), test::bank_options({40, 16, at::kHalf, segment_rows}, storage_of(ranks)));
      part.enqueue(tensor(file, "bank").narrow(0, first, parts[ranks.rank()].item<std::int64_t>()));
      // Rank 2 has the queries, the others only their parts.
      const std::int64_t own = ranks.rank() == 2 ? 6 : 0;
      const at::Tensor q = tensor(file, "q").to(at::kDouble).narrow(0, 0, own).clone().requires_grad_();
      const at::Tensor k = tensor(file, "k").to(at::kDouble).narrow(0, 0, own);
      const InfoNceResult got = info_nce(q, k, part, test::scalar(file, "T"), {.ranks = &ranks});
      got.loss.backward();
      if (own == 0) return;
      EXPECT_TRUE(got.rows.allclose(tensor(file, "loss_rows"), 0, 1e-12));
      EXPECT_TRUE(got.lse.allclose(tensor(file, "lse"), 0, 1e-12));
      EXPECT_NEAR(got.loss.item<double>(), test::scalar(file, "loss"), 1e-12);
      EXPECT_TRUE(q.grad().allclose(tensor(file, "d_q"), 0, 1e-12));
    });
  }
}

TEST(PerRank, KeepsItsOwnKeysUntilAllSynchronise) {
  for (const int world_size : {1, 2, 3}) {
    on_ranks(world_size, [&](Collective& ranks) {
      const test::TestTiers tiers(storage_of(ranks));
      RankBank bank(tiers.get(), sharing(BankSharing::kPerRank, 1600, 64, storage_of(ranks)), ranks);
      // Rank r has r + 1 times 500 keys, r * 10,000 and on.
      const std::int64_t own = 500 * (ranks.rank() + 1);
      bank.enqueue(ids(ranks.rank() * 10'000, own));
      EXPECT_TRUE(contents(bank.local()).equal(ids(ranks.rank() * 10'000, own)));
      const BankCounts before = bank.local().counts();
      bank.synchronise();
      // Each gives its share at most: 1600, 800, or 534, 533, 533 keys. The newest of all come last, in rank order.
      std::vector<at::Tensor> wanted;
      std::vector<std::int64_t> counts;
      for (std::int64_t rank = 0; rank < world_size; ++rank) {
        counts.push_back(
            std::min<std::int64_t>(500 * (rank + 1), 1600 / world_size + (rank < 1600 % world_size ? 1 : 0)));
      }
      for (std::int64_t age = 1599; age >= 0; --age) {
        for (std::int64_t rank = 0; rank < world_size; ++rank) {
          if (age < counts[static_cast<std::size_t>(rank)])
            wanted.push_back(ids(rank * 10'000 + 500 * (rank + 1) - 1 - age, 1));
        }
      }
      EXPECT_TRUE(contents(bank.local()).equal(at::cat(wanted)));
      EXPECT_EQ(bank.local().counts().accepted_rows, before.accepted_rows);
      bank.enqueue(ids(7, ranks.rank()));  // And goes on by itself.
      EXPECT_EQ(bank.local().counts().accepted_rows, before.accepted_rows + static_cast<std::uint64_t>(ranks.rank()));
    });
  }
}

TEST(PerRank, SynchronisesRowsOf8BitsWithoutRoundingThemAgain) {
  on_ranks(2, [](Collective& ranks) {
    test::BankShape shape{40, 5, at::kChar, 7};
    shape.labels = true;
    const test::TestTiers tiers(storage_of(ranks));
    RankBank bank(tiers.get(), {test::bank_options(shape, storage_of(ranks)), BankSharing::kPerRank, {}}, ranks);
    const auto rank = static_cast<std::uint64_t>(ranks.rank());
    bank.enqueue(random_rows(40, 5, rank), at::full({40}, ranks.rank(), at::TensorOptions(at::kLong)));
    const at::Tensor newest = contents(bank.local()).narrow(0, 20, 20);
    bank.synchronise();
    const at::Tensor mine = at::arange(ranks.rank(), 40, 2, at::TensorOptions(at::kLong));
    EXPECT_TRUE(contents(bank.local()).index_select(0, mine).equal(newest));
    EXPECT_TRUE(bank.local().labels(mine).eq(ranks.rank()).all().item<bool>());
  });
}

TEST(BadRows, AreDroppedAndCountedOnAllRanksAndSaidOnce) {
  for (const BankSharing how : {BankSharing::kReplicated, BankSharing::kSharded}) {
    on_ranks(3, [&](Collective& ranks) {
      const test::TestTiers tiers(Storage::kMemory);
      RankBank bank(tiers.get(), roomy(sharing(how, 30, 4, Storage::kMemory)), ranks);
      for (int step = 0; step < 2; ++step) {
        at::Tensor keys = ids(step * 15 + ranks.rank() * 5, 5);
        if (ranks.rank() == 1) keys[3].fill_(std::numeric_limits<float>::quiet_NaN());
        if (ranks.rank() == 2) keys[0].fill_(std::numeric_limits<float>::infinity());
        bank.enqueue(keys);
      }
      EXPECT_EQ(bank.local().rejected_rows(), 4U);
      EXPECT_EQ(bank.size(), 26);
      const at::Tensor all = how == BankSharing::kSharded ? all_parts(bank, ranks) : contents(bank.local()).squeeze(1);
      EXPECT_TRUE(all.isfinite().all().item<bool>());
      EXPECT_EQ(all.size(0), 26);
      if (ranks.rank() == 1) {
        EXPECT_THAT(tiers.lines(), ElementsAre(AllOf(HasSubstr("rank 1: bank"), HasSubstr("row 3 of a batch of 5"))));
      }
      if (ranks.rank() == 0) {
        EXPECT_THAT(tiers.lines(), IsEmpty());
      }
    });
  }
}

TEST(RankState, GoesToAnyNumberOfRanks) {
  for (const BankSharing how : {BankSharing::kReplicated, BankSharing::kSharded, BankSharing::kPerRank}) {
    for (const int former : {1, 2, 3}) {
      std::vector<RankBankState> states(static_cast<std::size_t>(former));
      on_ranks(former, [&](Collective& ranks) {
        const test::TestTiers tiers(storage_of(ranks));
        RankBank bank(tiers.get(), roomy(sharing(how, 50, 3, storage_of(ranks))), ranks);
        for (std::int64_t step = 0; step < 4; ++step) {
          bank.enqueue(ids((step * former + ranks.rank()) * 7, 7));
        }
        states[static_cast<std::size_t>(ranks.rank())] = bank.take_state();
      });
      for (const int now : {1, 2, 3}) {
        SCOPED_TRACE(std::to_string(former) + " -> " + std::to_string(now));
        const std::int64_t all = 4 * 7 * former;
        const std::int64_t kept = std::min<std::int64_t>(all, 50);
        on_ranks(now, [&](Collective& ranks) {
          const test::TestTiers tiers(storage_of(ranks));
          RankBank bank(tiers.get(), roomy(sharing(how, 50, 5, storage_of(ranks))), ranks);
          bank.enqueue(ids(-5, 5));  // Is forgotten.
          bank.put_state(states);
          if (how == BankSharing::kReplicated) {
            EXPECT_TRUE(contents(bank.local()).equal(ids(all - kept, kept)));
            EXPECT_EQ(bank.local().position(), all % 50);
          } else if (how == BankSharing::kSharded) {
            EXPECT_TRUE(all_parts(bank, ranks).equal(ids(all - kept, kept).squeeze(1)));
            bank.enqueue(ids(all + ranks.rank() * 10, 10));
            const std::int64_t later = all + 10 * now;
            const std::int64_t size = std::min<std::int64_t>(50, kept + 10 * now);
            EXPECT_TRUE(all_parts(bank, ranks).equal(ids(later - size, size).squeeze(1)));
          } else if (former == now) {
            EXPECT_TRUE(contents(bank.local()).equal(states[static_cast<std::size_t>(ranks.rank())].local.rows.values));
          } else {
            EXPECT_EQ(bank.size(), kept);  // The newest of all, in the order of their age.
            EXPECT_EQ(contents(bank.local())[kept - 1].item<float>(), static_cast<float>(all - 1));
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace spillway::queue::rank_bank_test

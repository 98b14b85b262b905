// Banks over Gloo, each rank a process.
#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <distributed/ranks.hpp>
#include <queue/bank_fixture.hpp>
#include <spillway/distributed/collective.hpp>
#include <spillway/distributed/launch.hpp>
#include <spillway/distributed/process_group.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/rank_bank.hpp>
#include <support/child_role.hpp>

namespace spillway::queue::rank_bank_processes_test {
namespace {

using test::Outcome;
using test::random_rows;
using test::RankProcesses;
using test::Storage;
using testing::HasSubstr;

constexpr std::int64_t kDim = 12;
constexpr std::int64_t kQueries = 11;
constexpr std::int64_t kSteps = 5;
const char* const kSharings[] = {"replicated", "sharded", "per_rank"};

/// Keys of all ranks in one step; rank r gives rows r, r + W, … of them, so that batches differ in size.
at::Tensor keys_of(std::int64_t step) { return random_rows(101, kDim, static_cast<std::uint64_t>(step), at::kDouble); }

at::Tensor every(const at::Tensor& rows, int rank, int world_size) { return rows.slice(0, rank, {}, world_size); }

/// The keys of all ranks in the order in which they enter.
at::Tensor in_rank_order(const at::Tensor& rows, int world_size) {
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < world_size; ++rank) parts.push_back(every(rows, rank, world_size));
  return at::cat(parts);
}

RankBankOptions options(const std::string& how, Storage storage) {
  const std::map<std::string, BankSharing> names{{"replicated", BankSharing::kReplicated},
                                                 {"sharded", BankSharing::kSharded},
                                                 {"per_rank", BankSharing::kPerRank}};
  RankBankOptions options{test::bank_options({300, kDim, at::kDouble, 32}, storage), names.at(how), {}};
  options.bank.host_bytes += options.bank.host_bytes / 4;  // Sharded, with the remainders of the capacity.
  return options;
}

/// The losses of this rank's queries over a bank that the ranks have in common.
at::Tensor losses(const std::string& how, distributed::Collective& ranks) {
  const Storage storage = test::kEveryStorage[static_cast<std::size_t>(ranks.rank()) % 3];
  const test::TestTiers tiers(storage);
  RankBank bank(tiers.get(), options(how, storage), ranks);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    bank.enqueue(every(keys_of(step), ranks.rank(), ranks.world_size()));
  }
  bank.synchronise();
  const at::Tensor q = random_rows(kQueries, kDim, 100, at::kDouble);
  const at::Tensor k = random_rows(kQueries, kDim, 101, at::kDouble);
  return info_nce(every(q, ranks.rank(), ranks.world_size()), every(k, ranks.rank(), ranks.world_size()), bank.local(),
                  0.5, bank.loss_options())
      .rows;
}

void run(const std::string& scenario) {
  const auto ranks = distributed::connect(distributed::read_rank_environment(), {.timeout = std::chrono::seconds(30)});
  if (scenario == "disagree") {
    RankBankOptions mine = options("sharded", Storage::kMemory);
    if (ranks->rank() == 1) mine.bank.dim = kDim + 1;
    const test::TestTiers tiers(Storage::kMemory);
    const RankBank bank(tiers.get(), mine, *ranks);
    return;
  }
  std::cout.precision(17);
  for (const char* const how : kSharings) {
    const at::Tensor rows = losses(how, *ranks);
    for (std::int64_t i = 0; i < rows.size(0); ++i) std::cout << rows[i].item<double>() << '\n';
  }
  std::cout << std::flush;
}

int play_rank(test::ChildRole::Arguments words) {
  at::set_num_threads(1);
  try {
    run(words[0]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}

const test::ChildRole role("bank_rank", play_rank);

/// The losses by a single bank in this process.
std::vector<double> wanted_losses(int world_size, bool synchronised) {
  const test::TestTiers tiers(Storage::kMemory);
  NegativeBank bank(tiers.get(), test::bank_options({300, kDim, at::kDouble, 32}, Storage::kMemory));
  if (synchronised) {
    for (int rank = 0; rank < world_size; ++rank) {
      std::vector<at::Tensor> own;
      for (std::int64_t step = 0; step < kSteps; ++step) own.push_back(every(keys_of(step), rank, world_size));
      const at::Tensor all = at::cat(own);
      const std::int64_t share =
          std::min(300 / world_size + (rank < 300 % world_size ? 1 : 0), static_cast<int>(all.size(0)));
      bank.enqueue(all.narrow(0, all.size(0) - share, share));  // The loss does not mind the order.
    }
  } else {
    for (std::int64_t step = 0; step < kSteps; ++step) bank.enqueue(in_rank_order(keys_of(step), world_size));
  }
  const at::Tensor rows =
      info_nce(random_rows(kQueries, kDim, 100, at::kDouble), random_rows(kQueries, kDim, 101, at::kDouble), bank, 0.5)
          .rows;
  return {rows.const_data_ptr<double>(), rows.const_data_ptr<double>() + kQueries};
}

TEST(BankProcesses, GiveTheLossesOfOneBankHoweverTheyShareIt) {
  for (const int world_size : {2, 3}) {
    SCOPED_TRACE(world_size);
    RankProcesses ranks("bank_rank", {"losses"}, world_size);
    const std::vector<Outcome> outcomes = ranks.wait();
    for (int rank = 0; rank < world_size; ++rank) {
      const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
      ASSERT_EQ(outcome.exit_status, 0) << outcome.error;
      std::istringstream lines(outcome.output);
      for (const std::string how : kSharings) {
        SCOPED_TRACE(how);
        const std::vector<double> wanted = wanted_losses(world_size, how == "per_rank");
        for (std::int64_t query = rank; query < kQueries; query += world_size) {
          double loss = 0.0;
          ASSERT_TRUE(lines >> loss);
          EXPECT_NEAR(loss, wanted.at(static_cast<std::size_t>(query)), 1e-12);
        }
      }
    }
  }
}

TEST(BankProcessErrors, EndWithOneErrorWhereTheyDisagree) {
  RankProcesses ranks("bank_rank", {"disagree"}, 2);
  for (const Outcome& outcome : ranks.wait()) {
    EXPECT_EQ(outcome.exit_status, 1);
    EXPECT_THAT(outcome.error, HasSubstr("the ranks disagree on dim"));
  }
}

}  // namespace
}  // namespace spillway::queue::rank_bank_processes_test

// Negatives gathered across ranks: on threads for the many ways to share a batch out, on processes over Gloo for a few.
#include <chrono>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <distributed/ranks.hpp>
#include <queue/bank_fixture.hpp>
#include <queue/golden_batch.hpp>
#include <queue/numerics.hpp>
#include <spillway/distributed/gradient_mean.hpp>
#include <spillway/distributed/process_group.hpp>
#include <spillway/distributed/thread_collective.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/contrastive_loss.hpp>
#include <spillway/queue/gather_rows.hpp>
#include <support/child_role.hpp>

namespace spillway::queue::contrastive_ranks_test {
namespace {

using distributed::Collective;
using test::max_error;
using test::random_rows;
using test::relative_error;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Sizes = std::vector<std::int64_t>;

void on_ranks(std::size_t world_size, const std::function<void(Collective&)>& body) {
  test::on_rank_threads(distributed::make_thread_group(static_cast<int>(world_size), std::chrono::seconds(30)), body);
}

// Rows 4 to 7 of the list of others' bugs: crash or hang with unequal ranks, gradients off by the number of ranks or in
// direction, gathering without a gradient.
TEST(ContrastiveRanks, GiveTheAnswersOfOneProcessHoweverTheBatchIsShared) {
  for (const Sizes& sizes : {Sizes{8}, {3, 5}, {1, 7}, {0, 8}, {8, 0}, {3, 0, 5}, {2, 3, 3}}) {
    on_ranks(sizes.size(), [&](Collective& ranks) {
      SCOPED_TRACE(testing::PrintToString(sizes) + " on rank " + std::to_string(ranks.rank()));
      test::expect_answers_of_one_process(ranks, sizes);
    });
  }
}

std::string joined(const Sizes& sizes) {
  std::ostringstream text;
  for (const std::int64_t size : sizes) text << size << " ";
  return text.str();
}

int play_rank(test::ChildRole::Arguments words) {
  ::testing::InitGoogleTest();
  std::istringstream text(words[0]);
  Sizes sizes;
  for (std::int64_t size = 0; text >> size;) sizes.push_back(size);
  const auto group = distributed::connect(distributed::read_rank_environment());
  test::expect_answers_of_one_process(*group, sizes);
  return ::testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
}

const test::ChildRole role("contrastive_rank", play_rank);

TEST(ContrastiveRankProcesses, GiveTheAnswersOfOneProcessOverGloo) {
  for (const Sizes& sizes : {Sizes{3, 5}, {3, 0, 5}}) {
    SCOPED_TRACE(joined(sizes));
    test::RankProcesses ranks("contrastive_rank", {joined(sizes)}, static_cast<int>(sizes.size()));
    for (const test::Outcome& outcome : ranks.wait())
      EXPECT_EQ(outcome.exit_status, 0) << outcome.output << outcome.error;
  }
}

/// Gradient of an encoder's weight by a loss over 24 samples, which the ranks share evenly, in float32.
at::Tensor shared_gradient(int world_size, const std::function<at::Tensor(const at::Tensor&, Collective&)>& loss) {
  at::Tensor result;
  on_ranks(static_cast<std::size_t>(world_size), [&](Collective& ranks) {
    const at::Tensor weight = random_rows(8, 10, 1).requires_grad_();
    const std::int64_t size = 24 / world_size;
    const at::Tensor images = random_rows(48, 10, 2).view({24, 2, 10}).narrow(0, ranks.rank() * size, size);
    const at::Tensor encoded = images.matmul(weight.t());
    loss(encoded / encoded.norm(2, {2}, /*keepdim=*/true), ranks).backward();
    distributed::average_gradients(std::vector{weight}, ranks);
    if (ranks.rank() == 0) result = weight.grad();
  });
  return result;
}

// Row 5: the gradient is the same for 1, 2 and 4 ranks, for every loss that gathers.
TEST(ContrastiveRanks, GiveTheSameGradientOnOneTwoThreeAndFourRanks) {
  using Loss = std::function<at::Tensor(const at::Tensor&, Collective&)>;
  const std::vector<std::pair<std::string, Loss>> losses{
      {"nt_xent", [](const at::Tensor& z,
                     Collective& ranks) { return nt_xent(z.select(1, 0), z.select(1, 1), 0.1, &ranks).loss; }},
      {"decoupled_contrastive",
       [](const at::Tensor& z, Collective& ranks) {
         return decoupled_contrastive(z.select(1, 0), z.select(1, 1), 0.1, &ranks).loss;
       }},
      {"sup_con in, first view, anchors with positives",
       [](const at::Tensor& z, Collective& ranks) {
         const at::Tensor labels = at::arange(z.size(0)).add(ranks.rank() * z.size(0)).remainder(17);
         return sup_con(z, labels, 0.1,
                        {.form = SupConOptions::Form::kIn,
                         .anchors = SupConOptions::Anchors::kFirstView,
                         .mean = SupConOptions::Mean::kAnchorsWithPositives,
                         .base_temperature = 0.07,
                         .ranks = &ranks})
             .loss;
       }},
      {"sup_con, one view, anchors with positives",
       [](const at::Tensor& z, Collective& ranks) {
         const at::Tensor labels = at::arange(z.size(0)).add(ranks.rank() * z.size(0)).remainder(17);
         return sup_con(z.narrow(1, 0, 1), labels, 0.1,
                        {.mean = SupConOptions::Mean::kAnchorsWithPositives, .ranks = &ranks})
             .loss;
       }},
      {"clip_loss",
       [](const at::Tensor& z, Collective& ranks) {
         return clip_loss(z.select(1, 0), z.select(1, 1), at::full({}, 2.0), {.ranks = &ranks}).loss;
       }},
  };
  for (const auto& [name, loss] : losses) {
    const at::Tensor alone = shared_gradient(1, loss);
    for (const int world_size : {2, 3, 4}) {
      EXPECT_LE(relative_error(shared_gradient(world_size, loss), alone), 2e-6) << name << " on " << world_size;
    }
  }
}

// Row 10: without gathering each rank has its own batch, whatever its number.
TEST(ContrastiveRanks, KeepToThemselvesWithoutGathering) {
  on_ranks(2, [](Collective& ranks) {
    const auto seed = static_cast<std::uint64_t>(ranks.rank());
    const at::Tensor z0 = random_rows(4, 8, seed);
    const at::Tensor z1 = random_rows(4, 8, seed + 10);
    const auto alone = distributed::connect(distributed::RankEnvironment{});
    EXPECT_TRUE(nt_xent(z0, z1, 0.5).loss.equal(nt_xent(z0, z1, 0.5, alone.get()).loss));
  });
}

// Row 4: ranks that disagree on the dimension all get an error.
TEST(ContrastiveRanks, AllFailWhereTheirDimensionsDiffer) {
  on_ranks(2, [](Collective& ranks) {
    const at::Tensor rows = random_rows(4, 8 + ranks.rank(), 1);
    EXPECT_THAT([&] { (void)nt_xent(rows, rows, 0.5, &ranks); },
                ThrowsMessage<Error>(HasSubstr("differs between ranks")));
  });
}

TEST(GatherRows, GivesRowsInRankOrderAndAddsGradientsInIt) {
  on_ranks(3, [](Collective& ranks) {
    const auto own = static_cast<double>(ranks.rank() + 1);
    const std::int64_t size = 2 - ranks.rank();  // 2, 1 and no row.
    const at::Tensor rows = at::full({size, 2}, own).requires_grad_();
    const GatheredRows gathered = gather_rows(rows, &ranks);
    EXPECT_EQ(gathered.rows.sizes(), (Sizes{3, 2}));
    EXPECT_EQ(gathered.first, ranks.rank() == 0 ? 0 : ranks.rank() + 1);
    EXPECT_EQ(gathered.rows.select(1, 0).sum().item<double>(), 2 * 1.0 + 2.0);
    (gathered.rows * own).sum().backward();
    EXPECT_TRUE(rows.grad().equal(at::full({size, 2}, 1.0 + 2.0 + 3.0)));
    EXPECT_DOUBLE_EQ(rank_share(size, ranks), 3.0 * static_cast<double>(size) / 3.0);
  });
}

TEST(GatherRows, LeavesRowsAloneWithoutRanksAndRefusesASecondDerivative) {
  const at::Tensor rows = random_rows(4, 2, 1).requires_grad_();
  EXPECT_TRUE(gather_rows(rows, nullptr).rows.is_same(rows));
  const auto alone = distributed::connect(distributed::RankEnvironment{});
  const at::Tensor gathered = gather_rows(rows, alone.get()).rows;
  const auto first = torch::autograd::grad({gathered.pow(2).sum()}, {rows}, {}, std::nullopt, /*create_graph=*/true);
  EXPECT_TRUE(first.at(0).equal(rows.detach() * 2));
  EXPECT_THAT([&] { first.at(0).sum().backward(); },
              ThrowsMessage<c10::Error>(HasSubstr("gather_rows has no second derivative")));
  EXPECT_EQ(rank_share(0, *alone), 0.0);
}

}  // namespace
}  // namespace spillway::queue::contrastive_ranks_test

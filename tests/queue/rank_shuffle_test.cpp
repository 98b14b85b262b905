#include <chrono>
#include <functional>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <distributed/ranks.hpp>
#include <queue/bank_fixture.hpp>
#include <queue/numerics.hpp>
#include <spillway/distributed/process_group.hpp>
#include <spillway/distributed/thread_collective.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/rank_shuffle.hpp>
#include <support/golden_torch.hpp>

namespace spillway::queue::rank_shuffle_test {
namespace {

using distributed::Collective;
using test::GoldenFile;
using test::max_error;
using test::random_rows;
using test::tensor;
using testing::HasSubstr;
using testing::ThrowsMessage;

void on_ranks(std::size_t world_size, const std::function<void(Collective&)>& body) {
  test::on_rank_threads(distributed::make_thread_group(static_cast<int>(world_size), std::chrono::seconds(30)), body);
}

at::Tensor batch_norm(const at::Tensor& rows) {
  return at::batch_norm(rows, {}, {}, {}, {}, /*training=*/true, 0.1, 1e-5, /*cudnn_enabled=*/false);
}

// Row 20 of the list of others' bugs: a permutation that differs between ranks or is not undone exactly.
TEST(RankShuffle, GivesTheGoldenBatchNormOverUnequalRanks) {
  const GoldenFile file = GoldenFile::open("16_shuffle_bn");
  on_ranks(2, [&](Collective& ranks) {
    const std::int64_t first = ranks.rank() == 0 ? 0 : 3;
    const std::int64_t size = tensor(file, "sizes")[ranks.rank()].item<std::int64_t>();
    const auto own = [&](const char* name) { return tensor(file, name).narrow(0, first, size); };
    // Only rank 0's order counts.
    const RankShuffle places(size, ranks.rank() == 0 ? tensor(file, "perm") : at::arange(8), ranks);
    const at::Tensor shuffled = places.shuffle(own("x"));
    EXPECT_TRUE(shuffled.equal(own("shuffled")));
    EXPECT_LE(max_error(batch_norm(shuffled), own("bn_out_shuffled")), 1e-12);
    EXPECT_LE(max_error(places.unshuffle(batch_norm(shuffled)), own("bn_out_unshuffled")), 1e-12);
    EXPECT_TRUE(places.unshuffle(shuffled).equal(own("x")));
    // The control: without it the statistics are other ones.
    EXPECT_LE(max_error(batch_norm(own("x")), own("bn_out_without_shuffle")), 1e-12);
    EXPECT_GT(max_error(own("bn_out_without_shuffle"), own("bn_out_unshuffled")), 1e-3);
  });
}

TEST(RankShuffle, IsUndoneExactlyForAnySizesAndDtypes) {
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{7}, {4, 3}, {0, 7}, {7, 0}, {2, 0, 5}, {1, 1, 5}}) {
    on_ranks(sizes.size(), [&](Collective& ranks) {
      const std::int64_t size = sizes[static_cast<std::size_t>(ranks.rank())];
      const at::Tensor order = random_rows(7, 1, 5).squeeze(1).argsort();
      const RankShuffle places(size, order, ranks);
      const at::Tensor images = random_rows(size * 6, 1, static_cast<std::uint64_t>(ranks.rank())).view({size, 2, 3});
      const at::Tensor labels = at::arange(size);
      EXPECT_TRUE(places.unshuffle(places.shuffle(images)).equal(images));
      EXPECT_TRUE(places.unshuffle(places.shuffle(labels)).equal(labels));
      EXPECT_FALSE(places.shuffle(images.clone().requires_grad_()).requires_grad());
    });
  }
}

TEST(RankShuffle, RefusesWhatIsNoPermutationOnAllRanks) {
  on_ranks(2, [](Collective& ranks) {
    for (const at::Tensor& order : {at::arange(3), at::zeros({4}, at::kLong), at::arange(4).to(at::kFloat)}) {
      EXPECT_THAT([&] { RankShuffle(2, order, ranks); },
                  ThrowsMessage<ConfigError>(HasSubstr("wanted a permutation of the 4 rows")));
    }
    const RankShuffle places(2, at::arange(4), ranks);
    EXPECT_THAT(
        [&] {
          (void)places.shuffle(at::zeros({3, 2}));
        },
        ThrowsMessage<ConfigError>(HasSubstr("got [3, 2] float on cpu, wanted 2 rows")));
  });
}

}  // namespace
}  // namespace spillway::queue::rank_shuffle_test

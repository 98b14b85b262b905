#include <spillway/app/data/epoch_order.hpp>

#include <algorithm>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::app::epoch_order_test {
namespace {

using ::testing::ElementsAre;

/// All samples of an epoch, in the order in which ranks and micro-batches are laid out.
std::vector<std::uint32_t> laid_out(const EpochOrder& order, const BatchShape& shape) {
  std::vector<std::uint32_t> samples;
  for (std::uint64_t step = 0; step < order.steps(); ++step) {
    for (std::uint64_t rank = 0; rank < shape.world_size; ++rank) {
      for (std::uint64_t micro = 0; micro < shape.accumulation; ++micro) {
        const auto part = order.micro_batch(step, rank, micro);
        samples.insert(samples.end(), part.begin(), part.end());
      }
    }
  }
  return samples;
}

std::vector<std::uint32_t> first_epoch(std::uint64_t seed, std::uint32_t epoch) {
  const BatchShape shape{.train_batch = 10};
  return laid_out(EpochOrder(40, shape, seed, epoch), shape);
}

TEST(EpochOrder, VisitsEverySampleOnce) {
  for (const BatchShape& shape :
       {BatchShape{.train_batch = 10}, BatchShape{.train_batch = 12, .accumulation = 2, .world_size = 3},
        BatchShape{.train_batch = 64}, BatchShape{.train_batch = 41}}) {
    std::vector<std::uint32_t> samples = laid_out(EpochOrder(41, shape, 1, 0), shape);
    std::ranges::sort(samples);
    std::vector<std::uint32_t> all(41);
    std::iota(all.begin(), all.end(), 0U);
    EXPECT_EQ(samples, all) << shape.train_batch;
  }
}

TEST(EpochOrder, DependsOnSeedAndEpochAndNothingElse) {
  EXPECT_EQ(first_epoch(1, 0), first_epoch(1, 0));
  EXPECT_NE(first_epoch(1, 0), first_epoch(1, 1));
  EXPECT_NE(first_epoch(1, 0), first_epoch(2, 0));
}

TEST(EpochOrder, IsTheSameHoweverAStepIsSharedOut) {
  const BatchShape one{.train_batch = 12};
  const std::vector<std::uint32_t> plain = laid_out(EpochOrder(40, one, 1, 0), one);
  for (const BatchShape& shape :
       {BatchShape{.train_batch = 12, .accumulation = 4}, BatchShape{.train_batch = 12, .world_size = 4},
        BatchShape{.train_batch = 12, .accumulation = 2, .world_size = 2}}) {
    EXPECT_EQ(laid_out(EpochOrder(40, shape, 1, 0), shape), plain);
  }
}

TEST(EpochOrder, KeepsOrDropsALastBatchThatIsNotFull) {
  EXPECT_EQ(EpochOrder(25, {.train_batch = 10}, 1, 0).steps(), 3U);
  EXPECT_EQ(EpochOrder(25, {.train_batch = 10, .drop_last = true}, 1, 0).steps(), 2U);
  EXPECT_EQ(EpochOrder(20, {.train_batch = 10}, 1, 0).steps(), 2U);
  EXPECT_EQ(EpochOrder(5, {.train_batch = 10, .drop_last = true}, 1, 0).steps(), 0U);
}

TEST(EpochOrder, SharesALastBatchOutEvenly) {
  const EpochOrder order(15, {.train_batch = 10, .world_size = 3}, 1, 0);
  std::vector<std::size_t> sizes;
  for (std::uint64_t rank = 0; rank < 3; ++rank) {
    sizes.push_back(order.micro_batch(1, rank, 0).size());
  }
  EXPECT_THAT(sizes, ElementsAre(2, 2, 1));
}

TEST(EpochOrder, LeavesARankWithoutSamplesWhereThereAreTooFew) {
  const EpochOrder order(11, {.train_batch = 10, .world_size = 2}, 1, 0);
  EXPECT_EQ(order.micro_batch(1, 0, 0).size(), 1U);
  EXPECT_EQ(order.micro_batch(1, 1, 0).size(), 0U);
}

}  // namespace
}  // namespace spillway::app::epoch_order_test

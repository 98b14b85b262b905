#include <spillway/app/methods/momentum_encoder.hpp>

#include <set>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <support/golden_torch.hpp>

namespace spillway::app::momentum_encoder_test {
namespace {

constexpr ImageGeometry kGeometry = {4, 2};  // Eight pixels.

EncoderConfig mlp(std::uint64_t width) {
  EncoderConfig config;
  config.kind = EncoderKind::kMlp;
  config.hidden = {width};
  return config;
}

ContrastiveConfig small_head(std::uint64_t groups = 2) {
  ContrastiveConfig config;
  config.projection_hidden_dim = 8;
  config.projection_dim = 4;
  config.batch_norm_groups = groups;
  return config;
}

ProjectedEncoder make_network(std::uint64_t groups = 2) { return {mlp(8), small_head(groups), kGeometry}; }

at::Tensor images(std::int64_t rows) { return at::rand({rows, 1, kGeometry.height, kGeometry.width}); }

TEST(ShuffledRows, IsAPermutationThatDependsOnItsNameAlone) {
  const at::Tensor order = shuffled_rows(100, {1, 2, 3, 4});
  EXPECT_TRUE(at::equal(order, shuffled_rows(100, {1, 2, 3, 4})));
  EXPECT_FALSE(at::equal(order, shuffled_rows(100, {1, 2, 3, 5})));
  const auto* rows = order.const_data_ptr<std::int64_t>();
  const std::set<std::int64_t> distinct(rows, rows + 100);
  EXPECT_EQ(distinct.size(), 100U);
  EXPECT_EQ(*distinct.begin(), 0);
  EXPECT_EQ(*distinct.rbegin(), 99);
}

TEST(ShuffledRows, TakesNoRowsAndOneRow) {
  EXPECT_EQ(shuffled_rows(0, {}).size(0), 0);
  EXPECT_EQ(shuffled_rows(1, {}).item<std::int64_t>(), 0);
}

TEST(MomentumEncoder, StartsAsACopyWithMemoryOfItsOwn) {
  at::manual_seed(1);
  const ProjectedEncoder followed = make_network();
  const MomentumEncoder keys(make_network(), followed, 0.9);
  const auto theirs = followed.parameters();
  const auto own = keys.network().parameters();
  ASSERT_EQ(own.size(), theirs.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_TRUE(at::equal(own[i].tensor, theirs[i].tensor)) << own[i].name;
    EXPECT_NE(own[i].tensor.data_ptr(), theirs[i].tensor.data_ptr()) << own[i].name;
    EXPECT_FALSE(own[i].tensor.requires_grad()) << own[i].name;
    EXPECT_TRUE(theirs[i].tensor.requires_grad()) << own[i].name;
  }
}

// A thousand steps towards a constant: half precision would stand still half-way. In float32 each step adds at most
// half an ulp of rounding, which the factor 0.99 of the next ones damps to about a hundred ulps of values around 1.
TEST(MomentumEncoder, FollowsAsTheClosedFormOfTheGoldenFile) {
  const auto file = test::GoldenFile::open("15_ema");
  const ProjectedEncoder followed = make_network();
  const auto first_weight = [](const ProjectedEncoder& network) { return network.parameters().front().tensor; };
  ASSERT_EQ(first_weight(followed).numel(), 64);
  const at::NoGradGuard no_grad;
  first_weight(followed).view(-1).copy_(test::tensor(file, "k0"));
  MomentumEncoder keys(make_network(), followed, test::scalar(file, "m"));
  first_weight(followed).view(-1).copy_(test::tensor(file, "q"));

  const auto steps = static_cast<int>(test::scalar(file, "steps"));
  for (int step = 0; step < steps; ++step) keys.follow();

  const at::Tensor got = first_weight(keys.network()).view(-1).to(at::kDouble);
  EXPECT_LT((got - test::tensor(file, "exact")).abs().max().item<double>(), 2e-5);
}

TEST(MomentumEncoder, SeesOtherGroupsAndGivesKeysInTheOrderOfTheImages) {
  at::manual_seed(3);
  ProjectedEncoder followed = make_network();
  MomentumEncoder keys(make_network(), followed, 0.9);
  const at::Tensor batch = images(10);
  const at::Tensor order = shuffled_rows(10, {7, 0, 0, 0});
  const at::NoGradGuard no_grad;

  const at::Tensor got = keys.encode(batch, order);

  EXPECT_TRUE(at::equal(got.index_select(0, order), followed.project(batch.index_select(0, order))));
  EXPECT_FALSE(at::equal(got, followed.project(batch))) << "the groups were those of the queries";
}

TEST(MomentumEncoder, RecordsNoGradient) {
  const ProjectedEncoder followed = make_network();
  MomentumEncoder keys(make_network(), followed, 0.9);
  EXPECT_FALSE(keys.encode(images(4), shuffled_rows(4, {})).requires_grad());
}

}  // namespace
}  // namespace spillway::app::momentum_encoder_test

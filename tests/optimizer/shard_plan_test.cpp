#include <spillway/optimizer/shard_plan.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

#include <spillway/offload/error.hpp>
#include <spillway/optimizer/gradient_kernel.hpp>

#include "support/errors.hpp"
#include "support/property.hpp"

namespace spillway::optimizer::shard_plan_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

PlannedParameter floats(std::uint64_t numel) { return {numel, numel * 4}; }

TEST(ShardPlan, CutsBucketsFromTheLastParameterOn) {
  ShardPlan plan({.weights = {1.0}, .bucket_bytes = 40});
  plan.append(std::vector{floats(3), floats(4), floats(5), floats(20), floats(1)});
  ASSERT_EQ(plan.buckets().size(), 4U);
  EXPECT_THAT(plan.buckets()[0].parameters, ElementsAre(4));
  EXPECT_THAT(plan.buckets()[1].parameters, ElementsAre(3));  // Larger than a bucket.
  EXPECT_THAT(plan.buckets()[2].parameters, ElementsAre(2, 1));
  EXPECT_THAT(plan.buckets()[3].parameters, ElementsAre(0));
  EXPECT_EQ(plan.bucket_of(1), 2U);
}

TEST(ShardPlan, PutsLaterParametersIntoBucketsOfTheirOwn) {
  ShardPlan plan({});
  plan.append(std::vector{floats(3), floats(4)});
  plan.append(std::vector{floats(5)});
  ASSERT_EQ(plan.buckets().size(), 2U);
  EXPECT_THAT(plan.buckets()[1].parameters, ElementsAre(2));
}

TEST(ShardPlan, GivesEachRankItsShareOfEqualTensors) {
  ShardPlan plan({.weights = {1.0, 3.0, 0.0}});
  plan.append(std::vector<PlannedParameter>(40, floats(10)));
  EXPECT_EQ(plan.owned_numel(0), 100U);
  EXPECT_EQ(plan.owned_numel(1), 300U);
  EXPECT_EQ(plan.owned_numel(2), 0U);
}

TEST(ShardPlan, CutsALargeTensorAtBlocks) {
  constexpr std::uint64_t kNumel = 10 * kSquaresBlockNumel + 7;
  ShardPlan plan({.weights = {1.0, 1.0}, .granularity = ShardGranularity::kBlock});
  plan.append(std::vector{floats(kNumel)});
  const std::vector<ShardPiece> wanted{{0, 0, 5 * kSquaresBlockNumel, 0}, {0, 5 * kSquaresBlockNumel, kNumel, 1}};
  EXPECT_EQ(plan.buckets()[0].pieces, wanted);
}

TEST(ShardPlan, RefusesWeightsThatCantBeRight) {
  const auto plan_for = [](std::vector<double> weights) { return [weights] { const ShardPlan plan({weights}); }; };
  EXPECT_THAT(message_of<ConfigError>(plan_for({})), HasSubstr("one for each rank"));
  EXPECT_THAT(message_of<ConfigError>(plan_for({0.0, 0.0})), HasSubstr("sum to 0"));
  EXPECT_THAT(message_of<ConfigError>(plan_for({1.0, -1.0})), HasSubstr("rank 1 is -1"));
  EXPECT_THAT(message_of<ConfigError>(plan_for({std::numeric_limits<double>::quiet_NaN()})), HasSubstr("rank 0"));
  EXPECT_THAT(message_of<ConfigError>(plan_for({std::numeric_limits<double>::infinity()})), HasSubstr("finite"));
  EXPECT_THAT(message_of<ConfigError>([] { const ShardPlan plan({.bucket_bytes = 0}); }), HasSubstr("0 bytes"));
}

// Every element has one owner, in pieces of one parameter after the other; shares are off by one tensor, or one block.
TEST(ShardPlan, CoversEveryElementOnceWhateverTheSizesAndWeights) {
  test::for_random_seeds(300, [](test::Random& random) {
    ShardPlanOptions options;
    options.weights.resize(random.between(1, 5));
    for (double& weight : options.weights) {
      weight = random.chance(1, 5) ? 0.0 : random.unit() + 0.01;
    }
    options.weights[random.below(options.weights.size())] = 1.0;
    options.bucket_bytes = random.between(1, 1U << 20);
    options.granularity = random.chance(1, 2) ? ShardGranularity::kBlock : ShardGranularity::kTensor;
    std::vector<PlannedParameter> parameters(random.between(0, 40));
    std::uint64_t largest = 0;
    for (PlannedParameter& parameter : parameters) {
      parameter = floats(random.below(random.chance(1, 3) ? 20 * kSquaresBlockNumel : 100));
      largest = std::max(largest, parameter.numel);
    }
    ShardPlan plan(options);
    plan.append(parameters);

    std::vector<std::uint64_t> covered(parameters.size());
    std::vector<std::uint64_t> owned(options.weights.size());
    for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
      const Bucket& bucket = plan.buckets()[b];
      std::uint64_t bytes = 0;
      for (const std::size_t parameter : bucket.parameters) {
        EXPECT_EQ(plan.bucket_of(parameter), b);
        bytes += parameters[parameter].gradient_bytes;
      }
      EXPECT_TRUE(bytes <= options.bucket_bytes || bucket.parameters.size() == 1);
      for (const ShardPiece& piece : bucket.pieces) {
        EXPECT_EQ(piece.begin, covered[piece.parameter]);
        EXPECT_TRUE(piece.end == parameters[piece.parameter].numel ||
                    (options.granularity == ShardGranularity::kBlock && piece.end % kSquaresBlockNumel == 0));
        EXPECT_GT(options.weights[static_cast<std::size_t>(piece.owner)], 0.0);
        covered[piece.parameter] = piece.end;
        owned[static_cast<std::size_t>(piece.owner)] += piece.end - piece.begin;
      }
    }
    const auto total = static_cast<double>(std::accumulate(owned.begin(), owned.end(), std::uint64_t{0}));
    const double weights = std::accumulate(options.weights.begin(), options.weights.end(), 0.0);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(covered[i], parameters[i].numel);
    }
    const double slack = static_cast<double>(
        options.granularity == ShardGranularity::kTensor ? largest : kSquaresBlockNumel * options.weights.size());
    for (std::size_t r = 0; r < owned.size(); ++r) {
      EXPECT_EQ(plan.owned_numel(static_cast<int>(r)), owned[r]);
      EXPECT_LE(static_cast<double>(owned[r]), total * options.weights[r] / weights + slack);
    }
  });
}

}  // namespace
}  // namespace spillway::optimizer::shard_plan_test

#include <spillway/offload/stripe_map.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include <spillway/offload/tier.hpp>

#include "support/property.hpp"

namespace spillway::offload::stripe_map_test {
namespace {

using test::Random;
using testing::ElementsAre;

StripeMap map_of(std::uint64_t unit_bytes, const std::vector<unsigned>& weights) { return {unit_bytes, weights}; }

TEST(StripeMap, LeavesEveryOffsetAloneWhereThereIsOnePath) {
  const StripeMap map = map_of(kPageBytes, {3});
  for (const std::uint64_t offset : {std::uint64_t{0}, kPageBytes, 7 * kPageBytes + 5}) {
    EXPECT_EQ(map.place(offset).path, 0U);
    EXPECT_EQ(map.place(offset).offset, offset);
    EXPECT_EQ(map.path_bytes(0, offset), offset);
  }
}

TEST(StripeMap, InterleavesByWeight) {
  const StripeMap map = map_of(kPageBytes, {3, 1, 2});
  std::vector<std::size_t> paths;
  for (std::uint64_t unit = 0; unit < 12; ++unit) {
    paths.push_back(map.place(unit * kPageBytes).path);
  }
  EXPECT_THAT(paths, ElementsAre(0, 2, 0, 1, 2, 0, 0, 2, 0, 1, 2, 0));
}

// The naive model: units are dealt one after the other, each to the end of its path's file.
TEST(StripeMap, AgreesWithUnitsThatAreDealtOneByOne) {
  test::for_random_seeds(50, [](Random& random) {
    std::vector<unsigned> weights(random.between(1, 5));
    for (unsigned& weight : weights) {
      weight = static_cast<unsigned>(random.between(1, 9));
    }
    const std::uint64_t unit = kPageBytes * random.between(1, 6);
    const StripeMap map(unit, weights);
    std::vector<std::uint64_t> end(weights.size(), 0);
    for (std::uint64_t dealt = 0; dealt < 300; ++dealt) {
      const std::uint64_t inside = random.below(unit);
      const StripeMap::Place place = map.place(dealt * unit + inside);
      ASSERT_EQ(place.offset, end[place.path] + inside);
      ASSERT_EQ(place.bytes, unit - inside);
      ASSERT_EQ(map.logical_offset(place.path, place.offset), dealt * unit + inside);
      for (std::size_t path = 0; path < weights.size(); ++path) {
        ASSERT_EQ(map.path_bytes(path, dealt * unit + inside), end[path] + (path == place.path ? inside : 0));
      }
      end[place.path] += unit;
      if ((dealt + 1) % map.pattern_units() == 0) {
        for (std::size_t path = 0; path < weights.size(); ++path) {
          ASSERT_EQ(end[path], (dealt + 1) / map.pattern_units() * weights[path] * unit);
        }
      }
    }
  });
}

TEST(StripeWeights, FollowTheRates) {
  EXPECT_THAT(stripe_weights(std::vector{2.0e9, 2.0e9}), ElementsAre(1, 1));
  EXPECT_THAT(stripe_weights(std::vector{3.0e9, 1.0e9}), ElementsAre(3, 1));
  EXPECT_THAT(stripe_weights(std::vector{5.0e9}), ElementsAre(1));
  EXPECT_THAT(stripe_weights(std::vector{2.9e9, 1.0e9, 2.0e9}), ElementsAre(8, 3, 5));
}

TEST(StripeWeights, LeaveNoPathOutHoweverSlow) {
  EXPECT_THAT(stripe_weights(std::vector{6.0e9, 1.0e6}), ElementsAre(16, 1));
}

TEST(StripeWeights, AreEqualWhereARateIsNotKnown) {
  EXPECT_THAT(stripe_weights(std::vector{2.0e9, 0.0, 1.0e9}), ElementsAre(1, 1, 1));
  EXPECT_THAT(stripe_weights(std::vector{2.0e9, std::numeric_limits<double>::quiet_NaN()}), ElementsAre(1, 1));
  EXPECT_THAT(stripe_weights(std::vector{2.0e9, std::numeric_limits<double>::infinity()}), ElementsAre(1, 1));
}

}  // namespace
}  // namespace spillway::offload::stripe_map_test

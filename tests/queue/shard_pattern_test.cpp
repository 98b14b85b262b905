#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <spillway/queue/shard_pattern.hpp>
#include <support/property.hpp>

namespace spillway::queue::shard_pattern_test {
namespace {

TEST(ShardPattern, DealsRowsByWeight) {
  const ShardPattern pattern({1, 0, 2});
  const int owners[] = {0, 2, 2, 0, 2, 2, 0};
  for (std::int64_t number = 0; number < 7; ++number) EXPECT_EQ(pattern.owner(number), owners[number]) << number;
}

TEST(ShardPattern, CountsWhatItDealsAndBoundsEveryWindow) {
  test::for_random_seeds(30, [](test::Random& random) {
    std::vector<std::int64_t> weights(static_cast<std::size_t>(random.between(1, 4)));
    for (std::int64_t& weight : weights) weight = static_cast<std::int64_t>(random.below(4));
    weights[random.below(weights.size())] = 2;
    const ShardPattern pattern(weights);
    const auto window = static_cast<std::int64_t>(random.between(1, 25));
    std::vector<std::int64_t> most(weights.size(), 0);
    for (std::int64_t first = 0; first < 40; ++first) {
      std::vector<std::int64_t> counts(weights.size(), 0);
      for (std::int64_t number = first; number < first + window; ++number) {
        ++counts[static_cast<std::size_t>(pattern.owner(number))];
      }
      for (std::size_t rank = 0; rank < weights.size(); ++rank) {
        EXPECT_EQ(pattern.count(static_cast<int>(rank), first, first + window), counts[rank]);
        most[rank] = std::max(most[rank], counts[rank]);
      }
    }
    // The bound is what memory is set aside for: it must not be generous either.
    for (std::size_t rank = 0; rank < weights.size(); ++rank) {
      EXPECT_EQ(pattern.most(static_cast<int>(rank), window), most[rank]);
    }
  });
}

}  // namespace
}  // namespace spillway::queue::shard_pattern_test

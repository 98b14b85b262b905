#include <spillway/app/data/counter_rng.hpp>

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::app::counter_rng_test {
namespace {

using Counter = std::array<std::uint32_t, 4>;
constexpr std::uint32_t kOnes = 0xFFFFFFFFU;

TEST(Philox, GivesThePublishedAnswers) {
  // Known-answer vectors of the paper's reference library.
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Counter{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Counter{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (Counter{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

std::vector<std::uint32_t> first_bits(const StreamName& name) {
  CounterRng rng(name);
  std::vector<std::uint32_t> bits;
  for (int i = 0; i < 6; ++i) {
    bits.push_back(rng.bits());
  }
  return bits;
}

TEST(CounterRng, IsAFunctionOfItsNameAndOfEveryPartOfIt) {
  const StreamName name{.seed = 1, .purpose = 2, .epoch = 3, .sample = 4};
  EXPECT_EQ(first_bits(name), first_bits(name));
  std::set<std::vector<std::uint32_t>> streams = {first_bits(name)};
  for (const StreamName& other : {StreamName{.seed = 2, .purpose = 2, .epoch = 3, .sample = 4},
                                  StreamName{.seed = 1, .purpose = 3, .epoch = 3, .sample = 4},
                                  StreamName{.seed = 1, .purpose = 2, .epoch = 4, .sample = 4},
                                  StreamName{.seed = 1, .purpose = 2, .epoch = 3, .sample = 5},
                                  StreamName{.seed = 1 + (1ULL << 32U), .purpose = 2, .epoch = 3, .sample = 4}}) {
    EXPECT_TRUE(streams.insert(first_bits(other)).second);
  }
}

TEST(CounterRng, DrawsUniformNumbersWithinBoundsAndWithTheRightMean) {
  CounterRng rng({.seed = 1});
  double sum = 0.0;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    const float value = rng.uniform(-2.0F, 6.0F);
    ASSERT_GE(value, -2.0F);
    ASSERT_LT(value, 6.0F);
    sum += value;
  }
  // Standard error: 8 / sqrt(12) / sqrt(20,000) = 0.016.
  EXPECT_NEAR(sum / kDraws, 2.0, 0.08);
}

TEST(CounterRng, DrawsEachIntegerEquallyOften) {
  CounterRng rng({.seed = 1});
  std::array<int, 3> counts{};
  constexpr int kDraws = 30'000;
  for (int i = 0; i < kDraws; ++i) {
    ++counts.at(rng.below(3));
  }
  for (const int count : counts) {
    EXPECT_NEAR(count, kDraws / 3, 410);  // Five standard deviations of 82.
  }
  EXPECT_EQ(rng.below(1), 0U);
}

TEST(CounterRng, DrawsNormalNumbersOfMean0AndVariance1) {
  CounterRng rng({.seed = 1});
  double sum = 0.0;
  double squares = 0.0;
  constexpr int kPairs = 20'000;
  for (int i = 0; i < kPairs; ++i) {
    for (const float value : rng.normals()) {
      ASSERT_TRUE(std::isfinite(value));
      sum += value;
      squares += double{value} * value;
    }
  }
  EXPECT_NEAR(sum / (2 * kPairs), 0.0, 0.025);      // Five times 0.005.
  EXPECT_NEAR(squares / (2 * kPairs), 1.0, 0.036);  // Five times sqrt(2 / 40,000).
}

}  // namespace
}  // namespace spillway::app::counter_rng_test

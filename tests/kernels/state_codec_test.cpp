#include <spillway/optimizer/state_codec.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernel_problem.hpp"
#include "support/property.hpp"

namespace spillway::optimizer::state_codec_test {
namespace {

using kernel_test::InstructionSet;

bool is_nan(std::uint32_t bits) { return (bits & 0x7FFFFFFF) > 0x7F800000; }

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

struct Split {
  explicit Split(std::size_t numel) : masters(numel), joined(numel), weights(numel), remainders(numel) {}
  void round_trip(const offload::Parallel& parallel) {
    split_masters(masters, weights, remainders, parallel);
    join_masters(weights, remainders, joined, parallel);
  }
  std::vector<float> masters, joined;
  std::vector<std::uint16_t> weights;
  std::vector<std::int16_t> remainders;
};

// Every float there is: 2^32 of them, in chunks that stay in cache.
TEST(Remainder, GivesEveryFloatBack) {
  constexpr std::uint64_t kChunk = 1 << 15;
  const offload::Parallel alone({.threads = 1});
  const offload::Parallel parallel;
  std::atomic<std::uint64_t> wrong = 0;
  parallel.for_ranges(std::uint64_t{1} << 32, std::uint64_t{1} << 24, [&](offload::Range range) {
    Split split(kChunk);
    for (std::uint64_t begin = range.begin; begin < range.end; begin += kChunk) {
      const auto first = static_cast<std::uint32_t>(begin);
      for (std::uint32_t i = 0; i < kChunk; ++i) {
        split.masters[i] = std::bit_cast<float>(first + i);
      }
      split.round_trip(alone);
      if (is_nan(first + 1)) {  // A chunk is NaN but for infinity, its first element.
        for (std::uint32_t i = 0; i < kChunk; ++i) {
          const auto got = bits_of(split.joined[i]);
          const bool kept = is_nan(first + i) ? is_nan(got) && (got >> 31) == (first >> 31) : got == first + i;
          wrong += kept ? 0 : 1;
        }
      } else {
        wrong += std::memcmp(split.joined.data(), split.masters.data(), kChunk * sizeof(float)) != 0 ? 1 : 0;
      }
    }
  });
  EXPECT_EQ(wrong.load(), 0U);
}

TEST(Remainder, TheWeightIsTheMasterRoundedWithTiesAwayFromZero) {
  const struct {
    std::uint32_t master;
    std::uint16_t weight;
    std::int16_t remainder;
  } examples[] = {
      {0x3F800000, 0x3F80, 0},                                                             // 1.
      {0x3F808000, 0x3F81, -32768},                                                        // A tie goes away from zero.
      {0xBF808000, 0xBF81, -32768}, {0x3F807FFF, 0x3F80, 32767}, {0x00000001, 0x0000, 1},  // The smallest subnormal.
      {0x007FFFFF, 0x0080, -1},  // The largest one rounds to a normal number.
      {0x80000000, 0x8000, 0},   // -0.
      {0x7F7FFFFF, 0x7F80, -1},  // The largest float: its weight is infinite, the master is not.
      {0x7F800000, 0x7F80, 0},   // Infinity.
      {0x7F800001, 0x7FC0, 0},   // A NaN that plain rounding would make infinite,
      {0xFFFFFFFF, 0xFFC0, 0},   // and one that it would make 0.
  };
  for (const std::string& set : kernel_instruction_sets()) {
    const InstructionSet use(set);
    for (const auto& example : examples) {
      Split split(1);
      split.masters[0] = std::bit_cast<float>(example.master);
      split.round_trip(offload::Parallel({.threads = 1}));
      EXPECT_EQ(split.weights[0], example.weight) << set << std::hex << ", " << example.master;
      EXPECT_EQ(split.remainders[0], example.remainder) << set << std::hex << ", " << example.master;
      if (!is_nan(example.master)) {
        EXPECT_EQ(bits_of(split.joined[0]), example.master) << set;
      }
    }
  }
}

// The control: without the remainder a float does not come back.
TEST(Remainder, IsWhatMakesItLossless) {
  Split split(1);
  split.masters[0] = 0.1F;
  split.round_trip(offload::Parallel({.threads = 1}));
  std::fill(split.remainders.begin(), split.remainders.end(), std::int16_t{0});
  join_masters(split.weights, split.remainders, split.joined, offload::Parallel({.threads = 1}));
  EXPECT_NE(split.joined[0], split.masters[0]);
}

TEST(BFloat16State, IsTheNearestAndTiesGoToEven) {
  std::vector<float> values{1.0F, -0.0F, 0.1F, std::numeric_limits<float>::infinity(), 3.4e38F, 1e-40F};
  test::Random random(3);
  while (values.size() < 70'001) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random.below(0x100000000)));
    values.push_back(std::isnan(value) ? 1.0F : value);
    values.push_back(std::bit_cast<float>((bits_of(values.back()) & 0xFFFF0000) | 0x8000));  // A tie.
    values.back() = std::isnan(values.back()) ? 1.0F : values.back();
  }
  for (const std::string& set : kernel_instruction_sets()) {
    const InstructionSet use(set);
    std::vector<std::uint16_t> codes(values.size());
    std::vector<float> back(values.size());
    encode_bfloat16(values, codes, offload::Parallel());
    decode_bfloat16(codes, back, offload::Parallel());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint32_t bits = bits_of(values[i]);
      const std::uint32_t low = bits & 0xFFFF;
      const bool up = low > 0x8000 || (low == 0x8000 && (bits & 0x10000) != 0);
      ASSERT_EQ(codes[i], (bits >> 16) + (up ? 1 : 0)) << set << ", " << values[i];
      ASSERT_EQ(bits_of(back[i]), static_cast<std::uint32_t>(codes[i]) << 16);
    }
    const float nan = std::bit_cast<float>(0x7F800001U);
    encode_bfloat16({&nan, 1}, std::span(codes).first(1), offload::Parallel());
    decode_bfloat16(std::span(codes).first(1), std::span(back).first(1), offload::Parallel());
    EXPECT_TRUE(std::isnan(back[0])) << set;
  }
}

TEST(DynamicMap, HasTheValuesOfThePaper) {
  const auto& with_sign = dynamic_values(DynamicMap::kSigned);
  const auto& without_sign = dynamic_values(DynamicMap::kUnsigned);
  for (const auto* values : {&with_sign, &without_sign}) {
    EXPECT_TRUE(std::is_sorted(values->begin(), values->end()));
    EXPECT_EQ(std::adjacent_find(values->begin(), values->end()), values->end());
    EXPECT_EQ(values->back(), 1.0F);
    EXPECT_EQ(std::count(values->begin(), values->end(), 0.0F), 1);
  }
  // By hand: the lowest decade of the signed map has the one value 0.55e-6, that of the unsigned one 0.325e-6 and
  // 0.775e-6; the highest has 64 parts and 128.
  EXPECT_FLOAT_EQ(with_sign[128], 0.55e-6F);
  EXPECT_FLOAT_EQ(with_sign[126], -0.55e-6F);
  EXPECT_FLOAT_EQ(with_sign[254], 1.0F - 0.9F / 128);
  EXPECT_FLOAT_EQ(with_sign[0], -(1.0F - 0.9F / 128));
  EXPECT_EQ(without_sign[0], 0.0F);
  EXPECT_FLOAT_EQ(without_sign[1], 0.325e-6F);
  EXPECT_FLOAT_EQ(without_sign[2], 0.775e-6F);
  EXPECT_FLOAT_EQ(without_sign[254], 1.0F - 0.9F / 256);
}

struct Coded {
  explicit Coded(std::vector<float> with_values, DynamicMap map, unsigned threads = 2)
      : values(std::move(with_values)),
        codes(values.size()),
        scales(dynamic_blocks(values.size())),
        back(values.size()) {
    const offload::Parallel parallel({.threads = threads});
    encode_dynamic(values, map, codes, scales, parallel);
    decode_dynamic(codes, scales, map, back, parallel);
  }
  std::vector<float> values;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  std::vector<float> back;
};

std::vector<float> some_state(DynamicMap map, std::size_t numel) {
  test::Random random(numel);
  std::vector<float> values;
  for (std::size_t i = 0; i < numel; ++i) {
    const double sign = map == DynamicMap::kSigned && random.chance(1, 2) ? -1.0 : 1.0;
    values.push_back(static_cast<float>(sign * std::pow(10.0, -9.0 * random.unit())));
  }
  return values;
}

TEST(DynamicState, IsTheNearestValueOfTheMapForEveryInstructionSet) {
  for (const std::string& set : kernel_instruction_sets()) {
    const InstructionSet use(set);
    for (const DynamicMap map : {DynamicMap::kSigned, DynamicMap::kUnsigned}) {
      const Coded coded(some_state(map, 20'001), map);
      const auto& table = dynamic_values(map);
      for (std::size_t i = 0; i < coded.values.size(); ++i) {
        const std::size_t block = i / 256 * 256;
        float largest = 0.0F;
        for (std::size_t j = block; j < std::min(block + 256, coded.values.size()); ++j) {
          largest = std::max(largest, std::abs(coded.values[j]));
        }
        ASSERT_EQ(coded.scales[i / 256], largest);
        double best = 2.0;
        for (const float value : table) {
          if (map == DynamicMap::kSigned || value > 0.0F) {  // No second moment becomes 0.
            best = std::min(best, std::abs(static_cast<double>(value) - coded.values[i] / largest));
          }
        }
        const double error = std::abs(static_cast<double>(table[coded.codes[i]]) - coded.values[i] / largest);
        ASSERT_LE(error, best + 1e-7) << set << ", element " << i;
        // The widest step of either map is the last one, 0.9 / 64: half of it bounds every error but that of -1.
        ASSERT_LE(std::abs(coded.back[i] - coded.values[i]), largest * (0.5 * 0.9 / 64 + 1e-6)) << set << ", " << i;
      }
    }
  }
}

TEST(DynamicState, EncodingWhatWasDecodedChangesNothing) {
  for (const DynamicMap map : {DynamicMap::kSigned, DynamicMap::kUnsigned}) {
    std::vector<float> values = some_state(map, 5000);
    for (std::size_t i = 0; i < values.size(); i += 256) {
      values[i] = 1.0F;  // The signed map has 1 but not -1: a block whose largest element is negative shrinks a little.
    }
    const Coded once(values, map);
    const Coded twice(once.back, map);
    EXPECT_EQ(twice.codes, once.codes);
    EXPECT_EQ(twice.back, once.back);
  }
}

TEST(DynamicState, BlocksStandAloneWhateverTheThreads) {
  const std::vector<float> values = some_state(DynamicMap::kSigned, 200'003);
  const Coded expected(values, DynamicMap::kSigned, 1);
  EXPECT_EQ(Coded(values, DynamicMap::kSigned, 3).codes, expected.codes);
  const Coded part({values.begin() + 512, values.begin() + 1000}, DynamicMap::kSigned, 1);
  EXPECT_TRUE(std::equal(part.codes.begin(), part.codes.end(), expected.codes.begin() + 512));
}

TEST(DynamicState, ASecondMomentThatIsNotZeroStaysAboveZero) {
  const Coded coded({1.0F, 1e-12F, 1e-45F, 0.0F, -1.0F}, DynamicMap::kUnsigned);
  EXPECT_GT(coded.back[1], 0.0F);
  EXPECT_GT(coded.back[2], 0.0F);
  EXPECT_EQ(coded.back[3], 0.0F);
  EXPECT_EQ(coded.back[4], 0.0F);
}

TEST(DynamicState, ZerosSubnormalsAndDamageComeBackAsThat) {
  std::vector<float> values(4 * 256, 0.0F);
  values[256] = 1e-44F;
  values[512 + 7] = std::numeric_limits<float>::infinity();
  values[768 + 255] = std::numeric_limits<float>::quiet_NaN();
  const Coded coded(values, DynamicMap::kSigned);
  EXPECT_TRUE(std::all_of(coded.back.begin(), coded.back.begin() + 256, [](float v) { return v == 0.0F; }));
  EXPECT_EQ(coded.back[256], 1e-44F);
  EXPECT_EQ(coded.back[257], 0.0F);
  EXPECT_TRUE(std::all_of(coded.back.begin() + 512, coded.back.end(), [](float v) { return std::isnan(v); }));
}

}  // namespace
}  // namespace spillway::optimizer::state_codec_test

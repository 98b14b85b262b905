#include <spillway/optimizer/gradient_kernel.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <spillway/optimizer/kernel_scalars.hpp>

#include "kernel_problem.hpp"
#include "support/property.hpp"

namespace spillway::optimizer::gradient_kernel_test {
namespace {

using kernel_test::InstructionSet;

constexpr ElementType kAllTypes[] = {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16};

struct Gradient {
  Gradient(ElementType with_type, std::size_t numel, std::uint64_t seed) : type(with_type) {
    test::Random random(seed);
    for (std::size_t i = 0; i < numel; ++i) {
      set(i, static_cast<float>((random.unit() - 0.5) * std::pow(10.0, 4.0 * random.unit() - 3.0)));
    }
  }
  void set(std::size_t i, float value) {
    wide.resize(std::max(wide.size(), i + 1));
    half.resize(wide.size());
    wide[i] = value;
    half[i] = type == ElementType::kFloat16 ? float_to_float16(value)
                                            : static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  }
  [[nodiscard]] double at(std::size_t i) const {
    switch (type) {
      case ElementType::kFloat32:
        return wide[i];
      case ElementType::kBFloat16:
        return std::bit_cast<float>(static_cast<std::uint32_t>(half[i]) << 16);
      default:
        return float16_to_float(half[i]);
    }
  }
  [[nodiscard]] GradientRun run() const {
    if (type == ElementType::kFloat32) {
      return {wide.data(), wide.size(), type};
    }
    return {half.data(), half.size(), type};
  }

  ElementType type;
  std::vector<float> wide;
  std::vector<std::uint16_t> half;
};

// The rule of grad_clip, element by element: 8 interleaved sums a block.
std::vector<double> expected_sums(const Gradient& gradient) {
  std::vector<double> result;
  for (std::size_t begin = 0; begin < gradient.wide.size(); begin += kSquaresBlockNumel) {
    std::array<double, 8> s{};
    for (std::size_t i = begin; i < std::min(begin + kSquaresBlockNumel, gradient.wide.size()); ++i) {
      s[(i - begin) % 8] += gradient.at(i) * gradient.at(i);
    }
    result.push_back(((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7])));
  }
  return result;
}

TEST(GradientKernel, SumsOfBlocksAreTheRulesBitForBitForEveryInstructionSetAndAnyThreads) {
  const std::size_t sizes[] = {0, 1, 7, 8, 9, 16'383, 16'384, 16'385, 3, 300'001};
  for (const ElementType type : kAllTypes) {
    std::vector<Gradient> gradients;
    std::vector<GradientRun> runs;
    std::vector<double> expected;
    for (const std::size_t size : sizes) {
      gradients.emplace_back(type, size, size);
      const auto sums = expected_sums(gradients.back());
      expected.insert(expected.end(), sums.begin(), sums.end());
    }
    for (const Gradient& gradient : gradients) {
      runs.push_back(gradient.run());
    }
    for (const std::string& set : kernel_instruction_sets()) {
      const InstructionSet use(set);
      for (const unsigned threads : {1U, 3U}) {
        std::vector<double> sums(squares_blocks(runs), -1.0);
        EXPECT_TRUE(gradient_squares(runs, sums, offload::Parallel({.threads = threads})));
        EXPECT_EQ(sums, expected) << set << ", " << threads << " threads";
      }
    }
  }
}

TEST(GradientKernel, OneInfinityOrNaNAnywhereIsFoundAndNothingElseIs) {
  const float bad[] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for (const std::string& set : kernel_instruction_sets()) {
    const InstructionSet use(set);
    const offload::Parallel parallel({.threads = 2});
    for (const ElementType type : kAllTypes) {
      Gradient gradient(type, 20'003, 1);
      std::vector<double> sums(squares_blocks(std::array{gradient.run()}));
      const auto finite = [&] { return gradient_squares(std::array{gradient.run()}, sums, parallel); };
      for (const std::size_t i : {0U, 5U, 16'383U, 16'384U, 20'000U, 20'002U}) {
        for (const float value : bad) {
          const float good = gradient.wide[i];
          gradient.set(i, value);
          EXPECT_FALSE(finite()) << set << ", element " << i;
          EXPECT_EQ(std::isfinite(sums[0]), i >= kSquaresBlockNumel);
          gradient.set(i, good);
        }
      }
      EXPECT_TRUE(finite());
    }
    // The largest floats are finite, and so are their squares in float64.
    Gradient largest(ElementType::kFloat32, 0, 1);
    for (std::size_t i = 0; i < kSquaresBlockNumel; ++i) {
      largest.set(i, std::numeric_limits<float>::max());
    }
    std::vector<double> sums(1);
    EXPECT_TRUE(gradient_squares(std::array{largest.run()}, sums, parallel));
  }
}

}  // namespace
}  // namespace spillway::optimizer::gradient_kernel_test

#include <spillway/optimizer/kernel_scalars.hpp>

#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "support/property.hpp"

namespace spillway::optimizer::kernel_scalars_test {
namespace {

double half_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(KernelScalars, WidenEveryFloat16Exactly) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float wide = float16_to_float(half);
    if ((bits & 0x7FFF) > 0x7C00) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      ASSERT_GT(float_to_float16(wide) & 0x7FFF, 0x7C00) << bits;
      continue;
    }
    if ((bits & 0x7FFF) == 0x7C00) {
      ASSERT_TRUE(std::isinf(wide)) << bits;
    } else {
      ASSERT_EQ(wide, half_value(half)) << bits;
    }
    ASSERT_EQ(float_to_float16(wide), half) << bits;
  }
}

TEST(KernelScalars, RoundToTheNearestFloat16AndTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const double low = half_value(static_cast<std::uint16_t>(bits));
    const double high = bits == 0x7BFF ? 65'536.0 : half_value(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // Exact.
    ASSERT_EQ(float_to_float16(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(float_to_float16(std::nextafter(middle, 0.0F)), bits) << bits;
    ASSERT_EQ(float_to_float16(std::nextafter(middle, 1e9F)), bits + 1) << bits;
  }
}

TEST(KernelScalars, AProductAndASumAreRoundedOnce) {
  test::Random random(7);
  const auto any = [&] {
    const auto bits = static_cast<std::uint32_t>(random.below(0x100000000));
    return std::bit_cast<float>((bits & 0x807FFFFF) | (static_cast<std::uint32_t>(64 + random.below(128)) << 23));
  };
  int differ = 0;
  for (int i = 0; i < 2'000'000; ++i) {
    const float a = any();
    const float b = any();
    // Products that cancel, that tie, and that have nothing to do with the addend.
    const float c = i % 3 == 0 ? -a * b : i % 3 == 1 ? std::nextafter(-a * b, 0.0F) * 0x1p24F : any();
    ASSERT_EQ(fused_scalar(a, b, c), std::fma(a, b, c)) << a << " * " << b << " + " << c;
    differ += fused_scalar(a, b, c) != static_cast<float>(static_cast<double>(a) * b + c) ? 1 : 0;
  }
  const float tie = 1.0F + 0x1p-23F;  // In double the sum is a tie of floats, and what decides it is lost.
  EXPECT_EQ(fused_scalar(0x1p-30F, 0x1p-30F, tie), std::fma(0x1p-30F, 0x1p-30F, tie));
  EXPECT_EQ(fused_scalar(std::numeric_limits<float>::infinity(), 1.0F, 1.0F), std::numeric_limits<float>::infinity());
  RecordProperty("rounded_twice_differs", differ);
}

}  // namespace
}  // namespace spillway::optimizer::kernel_scalars_test

#include <spillway/optimizer/kernel_scalars.hpp>

#include <bit>
#include <cmath>

namespace spillway::optimizer {

// The product of two floats is exact in double. The sum is rounded to odd there, which leaves a trace of what was cut
// off, so that the second rounding can't mistake it for a tie.
float fused_scalar(float a, float b, float c) noexcept {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = c;
  double sum = product + addend;
  const double part = sum - product;
  const double rest = (product - (sum - part)) + (addend - part);
  if (rest != 0.0 && std::isfinite(sum)) {
    auto bits = std::bit_cast<std::uint64_t>(sum);
    if ((bits & 1) == 0) {
      bits += (rest > 0.0) == (sum > 0.0) ? std::uint64_t{1} : ~std::uint64_t{0};
      sum = std::bit_cast<double>(bits);
    }
  }
  return static_cast<float>(sum);
}

float float16_to_float(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7FFFU) << 13;
  if (magnitude >= 0x0F800000U) {  // Infinity and NaN, which is made quiet.
    return std::bit_cast<float>(sign | 0x70000000U | magnitude | (magnitude > 0x0F800000U ? 0x00400000U : 0U));
  }
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112F;  // The exponents' biases differ by 112.
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
}

std::uint16_t float_to_float16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000U) {
    half = 0x7E00U | ((magnitude >> 13) & 0x01FFU);
  } else if (magnitude >= 0x477FF000U) {  // From 65,520 on: infinity.
    half = 0x7C00U;
  } else if (magnitude < 0x38800000U) {  // Below 2^-14: adding 0.5 rounds to units of 2^-24.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
  } else {
    half = (magnitude - 0x38000000U + 0x0FFFU + ((magnitude >> 13) & 1U)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace spillway::optimizer

#pragma once

#include <cstdint>

namespace spillway::optimizer {

/// a * b + c rounded once, for instruction sets that have no such instruction.
[[nodiscard]] float fused_scalar(float a, float b, float c) noexcept;
/// IEEE 754 binary16 as bits: exact, and to nearest with ties to even. A NaN stays one.
[[nodiscard]] float float16_to_float(std::uint16_t bits) noexcept;
[[nodiscard]] std::uint16_t float_to_float16(float value) noexcept;

}  // namespace spillway::optimizer

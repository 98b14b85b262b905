#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <spillway/offload/parallel.hpp>

namespace spillway::optimizer {

/// float32 masters as bf16 weights and signed 16-bit remainders, lossless: weight = (bits + 0x8000) >> 16, and
/// weight << 16 plus the remainder gives the bits back, in ties, subnormals and where the weight rounds to infinity
/// too. A NaN comes back as a quiet NaN of its sign. All spans have one size. Block until done.
void split_masters(std::span<const float> masters, std::span<std::uint16_t> weights, std::span<std::int16_t> remainders,
                   const offload::Parallel& parallel);
void join_masters(std::span<const std::uint16_t> weights, std::span<const std::int16_t> remainders,
                  std::span<float> masters, const offload::Parallel& parallel);

/// To nearest, ties to even; error at most 2^-9 of the value. A NaN stays one. Spans have one size.
void encode_bfloat16(std::span<const float> values, std::span<std::uint16_t> codes, const offload::Parallel& parallel);
void decode_bfloat16(std::span<const std::uint16_t> codes, std::span<float> values, const offload::Parallel& parallel);

/// Which 8-bit map a state uses: the unsigned one has twice the resolution.
enum class DynamicMap : std::uint8_t { kSigned, kUnsigned };

inline constexpr std::uint64_t kDynamicBlockNumel = 256;

/// How many scales `numel` elements have: one float a block of 256.
[[nodiscard]] constexpr std::uint64_t dynamic_blocks(std::uint64_t numel) noexcept {
  return numel / kDynamicBlockNumel + (numel % kDynamicBlockNumel != 0 ? 1 : 0);
}

/// The 256 values of a map in ascending order, within [-1, 1]: seven decades, each divided evenly, twice as finely as
/// the decade below. Source: Dettmers et al. 2022, 8-bit Optimizers via Block-wise Quantization, sec. 2.2 and 2.3.
[[nodiscard]] const std::array<float, 256>& dynamic_values(DynamicMap map) noexcept;

/// Stores each element as the nearest value of the map times its block's largest magnitude. With the unsigned map an
/// element above 0 never becomes 0, so that a second moment can't vanish under a root; one below 0 becomes 0. A block
/// with an infinity or NaN comes back as NaN: damage stays visible.
/// @param codes [numel]. @param scales [dynamic_blocks(numel)].
void encode_dynamic(std::span<const float> values, DynamicMap map, std::span<std::uint8_t> codes,
                    std::span<float> scales, const offload::Parallel& parallel);
void decode_dynamic(std::span<const std::uint8_t> codes, std::span<const float> scales, DynamicMap map,
                    std::span<float> values, const offload::Parallel& parallel);

}  // namespace spillway::optimizer

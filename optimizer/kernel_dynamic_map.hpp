#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include <spillway/optimizer/state_codec.hpp>

namespace spillway::optimizer {

/// A map of 8-bit codes, and what finds the nearest one quickly: the top bits of a magnitude select a bucket that is
/// narrower than the map is fine, so that one comparison decides between two codes.
class DynamicCodes {
 public:
  explicit DynamicCodes(DynamicMap map);
  static const DynamicCodes& of(DynamicMap map) noexcept;

  [[nodiscard]] const std::array<float, 256>& values() const noexcept { return values_; }

  /// @param magnitude |x| / largest, in [0, 1]. @returns the rank of the nearest magnitude, 0 for that of zero.
  [[nodiscard]] unsigned rank(float magnitude) const noexcept {
    const std::uint32_t bucket = std::bit_cast<std::uint32_t>(magnitude) >> 16;
    const std::uint32_t index = bucket < kLowest ? 0 : bucket - kLowest;
    const unsigned nearest = nearest_[index < nearest_.size() ? index : nearest_.size() - 1];
    return nearest + (magnitude > upper_[nearest] ? 1U : 0U);
  }
  /// The code of a magnitude of this rank.
  [[nodiscard]] std::uint8_t code(unsigned rank, bool negative, bool zero) const noexcept {
    if (is_signed_) {
      return static_cast<std::uint8_t>(negative ? kZero - (rank < kZero ? rank : kZero) : kZero + rank);
    }
    return static_cast<std::uint8_t>(negative || zero ? 0U : (rank == 0 ? 1U : rank));
  }

 private:
  static constexpr unsigned kZero = 127;              // The signed map's code of 0.
  static constexpr std::uint32_t kLowest = 104 << 7;  // The bucket of 2^-23, below half of any map's first step.

  std::array<float, 256> values_{};
  std::vector<float> upper_;           // Midpoint above each rank.
  std::vector<std::uint8_t> nearest_;  // Rank for the low end of each bucket.
  bool is_signed_;
};

}  // namespace spillway::optimizer

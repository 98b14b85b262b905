#include <spillway/optimizer/kernel_dynamic_map.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace spillway::optimizer {
namespace {

// The magnitudes of a map, ascending from 0 to 1. Decade d (of 7) is cut into 2^d even parts, or twice as many without
// signs; the middles of the parts are its values.
std::vector<float> magnitudes(bool is_signed) {
  std::vector<float> result{0.0F};
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = 1 << (is_signed ? decade : decade + 1);
    for (int part = 0; part < parts; ++part) {
      const double middle = 0.1 + 0.9 * (part + 0.5) / parts;
      result.push_back(static_cast<float>(middle * std::pow(10.0, decade - 6)));
    }
  }
  result.push_back(1.0F);
  return result;
}

}  // namespace

DynamicCodes::DynamicCodes(DynamicMap map) : is_signed_(map == DynamicMap::kSigned) {
  const std::vector<float> ranks = magnitudes(is_signed_);
  for (unsigned rank = 0; rank < ranks.size(); ++rank) {
    if (is_signed_) {
      values_[kZero - std::min(rank, kZero)] = -ranks[std::min(rank, kZero)];
      values_[kZero + rank] = ranks[rank];
    } else {
      values_[rank] = ranks[rank];
    }
    upper_.push_back(rank + 1 < ranks.size() ? 0.5F * (ranks[rank] + ranks[rank + 1])
                                             : std::numeric_limits<float>::infinity());
  }
  std::uint8_t rank = 0;
  for (std::uint32_t bucket = kLowest; bucket <= std::bit_cast<std::uint32_t>(1.0F) >> 16; ++bucket) {
    const auto low = std::bit_cast<float>(bucket << 16);
    while (low > upper_[rank]) {
      ++rank;
    }
    nearest_.push_back(rank);
  }
}

const DynamicCodes& DynamicCodes::of(DynamicMap map) noexcept {
  static const DynamicCodes with_sign(DynamicMap::kSigned);
  static const DynamicCodes without_sign(DynamicMap::kUnsigned);
  return map == DynamicMap::kSigned ? with_sign : without_sign;
}

const std::array<float, 256>& dynamic_values(DynamicMap map) noexcept { return DynamicCodes::of(map).values(); }

}  // namespace spillway::optimizer

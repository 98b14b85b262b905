#include <spillway/optimizer/state_codec.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <spillway/offload/check.hpp>
#include <spillway/optimizer/kernel_dynamic_map.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <spillway/optimizer/state_codec.cpp>
#include <hwy/foreach_target.h>

#include <spillway/optimizer/kernel_dispatch-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace spillway::optimizer::HWY_NAMESPACE {

void split_range(const float* masters, std::uint16_t* weights, std::int16_t* remainders, offload::Range range) {
  const Stream streams[3] = {{const_cast<float*>(masters), 4, false}, {weights, 2, true}, {remainders, 2, true}};
  for_vectors(streams, range.begin, range.end, [](void* const(&at)[3], std::size_t i) HWY_ATTR {
    split_remainder(load<ElementType::kFloat32>(at[0], i), at[1], at[2], i);
  });
}

void join_range(const std::uint16_t* weights, const std::int16_t* remainders, float* masters, offload::Range range) {
  const Stream streams[3] = {{const_cast<std::uint16_t*>(weights), 2, false},
                             {const_cast<std::int16_t*>(remainders), 2, false},
                             {masters, 4, true}};
  for_vectors(streams, range.begin, range.end, [](void* const(&at)[3], std::size_t i) HWY_ATTR {
    store<ElementType::kFloat32>(join_remainder(at[0], at[1], i), at[2], i);
  });
}

void to_bfloat16_range(const float* values, std::uint16_t* codes, offload::Range range) {
  const Stream streams[2] = {{const_cast<float*>(values), 4, false}, {codes, 2, true}};
  for_vectors(streams, range.begin, range.end, [](void* const(&at)[2], std::size_t i) HWY_ATTR {
    store<ElementType::kBFloat16>(load<ElementType::kFloat32>(at[0], i), at[1], i);
  });
}

void from_bfloat16_range(const std::uint16_t* codes, float* values, offload::Range range) {
  const Stream streams[2] = {{const_cast<std::uint16_t*>(codes), 2, false}, {values, 4, true}};
  for_vectors(streams, range.begin, range.end, [](void* const(&at)[2], std::size_t i) HWY_ATTR {
    store<ElementType::kFloat32>(load<ElementType::kBFloat16>(at[0], i), at[1], i);
  });
}

// The largest magnitude of a block as bits, whose order is that of the magnitudes with infinity and NaN at the end; and
// the magnitudes over it, where it is finite and not 0.
float normalize_block(const float* values, std::size_t numel, float* magnitudes) {
  const Stream streams[1] = {{const_cast<float*>(values), 4, false}};
  DI32 di;
  auto largest = hn::Zero(di);
  const auto absolute = [&](const void* at, std::size_t i)
                            HWY_ATTR { return hn::Abs(load<ElementType::kFloat32>(at, i)); };
  for_vectors(streams, 0, numel, [&](void* const(&at)[1], std::size_t i) HWY_ATTR {
    largest = hn::Max(largest, hn::BitCast(di, absolute(at[0], i)));
  });
  HWY_ALIGN std::int32_t lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(largest, di, lanes);
  std::int32_t bits = 0;
  for (std::size_t lane = 0; lane < hn::Lanes(di); ++lane) {
    bits = lanes[lane] > bits ? lanes[lane] : bits;
  }
  float scale = 0.0F;
  std::memcpy(&scale, &bits, sizeof(scale));
  if (bits == 0 || bits >= 0x7F800000) {
    return scale;
  }
  const V32 divisor = hn::Set(D32(), scale);
  const Stream both[2] = {streams[0], {magnitudes, 4, true}};
  for_vectors(both, 0, numel, [&](void* const(&at)[2], std::size_t i) HWY_ATTR {
    store<ElementType::kFloat32>(hn::Div(absolute(at[0], i), divisor), at[1], i);
  });
  return scale;
}

}  // namespace spillway::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::optimizer {
namespace {

HWY_EXPORT(split_range);
HWY_EXPORT(join_range);
HWY_EXPORT(to_bfloat16_range);
HWY_EXPORT(from_bfloat16_range);
HWY_EXPORT(normalize_block);

constexpr std::uint64_t kGrain = 65'536;  // A multiple of kDynamicBlockNumel.

void encode_block(std::span<const float> values, const DynamicCodes& map, std::uint8_t* codes, float& scale) {
  float magnitudes[kDynamicBlockNumel];
  scale = HWY_DYNAMIC_DISPATCH(normalize_block)(values.data(), values.size(), magnitudes);
  if (scale == 0.0F || !std::isfinite(scale)) {
    scale = scale == 0.0F ? 0.0F : std::numeric_limits<float>::quiet_NaN();
    std::memset(codes, map.code(0, false, true), values.size());
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    codes[i] = map.code(map.rank(magnitudes[i]), values[i] < 0.0F, values[i] == 0.0F);
  }
}

}  // namespace

void split_masters(std::span<const float> masters, std::span<std::uint16_t> weights, std::span<std::int16_t> remainders,
                   const offload::Parallel& parallel) {
  SPILLWAY_CHECK(weights.size() == masters.size() && remainders.size() == masters.size(), "spans of different sizes");
  parallel.for_ranges(masters.size(), kGrain, [&](offload::Range range) {
    HWY_DYNAMIC_DISPATCH(split_range)(masters.data(), weights.data(), remainders.data(), range);
  });
}

void join_masters(std::span<const std::uint16_t> weights, std::span<const std::int16_t> remainders,
                  std::span<float> masters, const offload::Parallel& parallel) {
  SPILLWAY_CHECK(weights.size() == masters.size() && remainders.size() == masters.size(), "spans of different sizes");
  parallel.for_ranges(masters.size(), kGrain, [&](offload::Range range) {
    HWY_DYNAMIC_DISPATCH(join_range)(weights.data(), remainders.data(), masters.data(), range);
  });
}

void encode_bfloat16(std::span<const float> values, std::span<std::uint16_t> codes, const offload::Parallel& parallel) {
  SPILLWAY_CHECK(values.size() == codes.size(), "spans of different sizes");
  parallel.for_ranges(values.size(), kGrain, [&](offload::Range range) {
    HWY_DYNAMIC_DISPATCH(to_bfloat16_range)(values.data(), codes.data(), range);
  });
}

void decode_bfloat16(std::span<const std::uint16_t> codes, std::span<float> values, const offload::Parallel& parallel) {
  SPILLWAY_CHECK(values.size() == codes.size(), "spans of different sizes");
  parallel.for_ranges(values.size(), kGrain, [&](offload::Range range) {
    HWY_DYNAMIC_DISPATCH(from_bfloat16_range)(codes.data(), values.data(), range);
  });
}

void encode_dynamic(std::span<const float> values, DynamicMap map, std::span<std::uint8_t> codes,
                    std::span<float> scales, const offload::Parallel& parallel) {
  SPILLWAY_CHECK(codes.size() == values.size() && scales.size() == dynamic_blocks(values.size()),
                 "wanted a code for each element and a scale for each block");
  const DynamicCodes& table = DynamicCodes::of(map);
  parallel.for_ranges(values.size(), kGrain, [&](offload::Range range) {
    for (std::uint64_t begin = range.begin; begin < range.end; begin += kDynamicBlockNumel) {
      const std::uint64_t numel = std::min(kDynamicBlockNumel, range.end - begin);
      encode_block(values.subspan(begin, numel), table, codes.data() + begin, scales[begin / kDynamicBlockNumel]);
    }
  });
}

void decode_dynamic(std::span<const std::uint8_t> codes, std::span<const float> scales, DynamicMap map,
                    std::span<float> values, const offload::Parallel& parallel) {
  SPILLWAY_CHECK(codes.size() == values.size() && scales.size() == dynamic_blocks(values.size()),
                 "wanted a code for each element and a scale for each block");
  const std::array<float, 256>& table = dynamic_values(map);
  parallel.for_ranges(values.size(), kGrain, [&](offload::Range range) {
    for (std::uint64_t begin = range.begin; begin < range.end; begin += kDynamicBlockNumel) {
      const std::uint64_t end = std::min(begin + kDynamicBlockNumel, range.end);
      const float scale = scales[begin / kDynamicBlockNumel];
      for (std::uint64_t i = begin; i < end; ++i) {
        values[i] = table[codes[i]] * scale;
      }
    }
  });
}

}  // namespace spillway::optimizer
#endif  // HWY_ONCE

// What kernels are made of, compiled once for each instruction set: loads that widen, stores that round, and sums of
// products with the accuracy of more bits. Included by the kernels' sources only, below foreach_target.h.
#if defined(SPILLWAY_KERNEL_LANES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_KERNEL_LANES_INL
#undef SPILLWAY_KERNEL_LANES_INL
#else
#define SPILLWAY_KERNEL_LANES_INL
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <hwy/highway.h>

#include <spillway/optimizer/kernel_scalars.hpp>
#include <spillway/optimizer/kernel_types.hpp>

HWY_BEFORE_NAMESPACE();
namespace spillway::optimizer::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D32 = hn::ScalableTag<float>;
using V32 = hn::Vec<D32>;
using DU32 = hn::RebindToUnsigned<D32>;
using DI32 = hn::RebindToSigned<D32>;
using DU16 = hn::Rebind<std::uint16_t, D32>;
using DI16 = hn::Rebind<std::int16_t, D32>;
using VU32 = hn::Vec<DU32>;
using VU16 = hn::Vec<DU16>;

HWY_INLINE V32 float_bits(VU32 bits) { return hn::BitCast(D32(), bits); }
HWY_INLINE VU32 bits_of(V32 value) { return hn::BitCast(DU32(), value); }
HWY_INLINE VU32 set_bits(std::uint32_t bits) { return hn::Set(DU32(), bits); }
HWY_INLINE VU16 narrow(VU32 below_65536) { return hn::DemoteTo(DU16(), hn::BitCast(DI32(), below_65536)); }

// a * b + c, rounded once on every instruction set: results are the same everywhere.
HWY_INLINE V32 fused(V32 a, V32 b, V32 c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  const D32 d;
  HWY_ALIGN float lanes[3][HWY_MAX_BYTES / sizeof(float)];
  hn::Store(a, d, lanes[0]);
  hn::Store(b, d, lanes[1]);
  hn::Store(c, d, lanes[2]);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
    lanes[0][i] = fused_scalar(lanes[0][i], lanes[1][i], lanes[2][i]);
  }
  return hn::Load(d, lanes[0]);
#endif
}

// a * b - c, likewise.
HWY_INLINE V32 fused_minus(V32 a, V32 b, V32 c) {
#if HWY_NATIVE_FMA
  return hn::MulSub(a, b, c);
#else
  return fused(a, b, hn::Neg(c));
#endif
}

// Nearest, ties to even; a NaN stays one. The low 16 bits of each lane.
HWY_INLINE VU32 bfloat16_bits(V32 value) {
  const VU32 bits = bits_of(value);
  const VU32 odd = hn::And(hn::ShiftRight<16>(bits), set_bits(1));
  const VU32 rounded = hn::Add(bits, hn::Add(odd, set_bits(0x7FFF)));
  const VU32 nan = hn::Or(bits, set_bits(0x00400000));
  return hn::ShiftRight<16>(hn::IfThenElse(hn::RebindMask(DU32(), hn::IsNaN(value)), nan, rounded));
}

HWY_INLINE VU16 round_to_bfloat16(V32 value) { return narrow(bfloat16_bits(value)); }

HWY_INLINE VU16 round_to_float16(V32 value) {
#if HWY_NATIVE_FMA
  return hn::BitCast(DU16(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D32>(), value));
#else
  HWY_ALIGN float from[HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN std::uint16_t to[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(value, D32(), from);
  for (std::size_t i = 0; i < hn::Lanes(D32()); ++i) {
    to[i] = float_to_float16(from[i]);
  }
  return hn::Load(DU16(), to);
#endif
}

// --- elements of one type in memory; `i` counts elements ---

// As many floats as `d` has lanes.
template <ElementType kType, typename D>
HWY_INLINE hn::Vec<D> load_floats(D d, const void* from, std::size_t i) {
  if constexpr (kType == ElementType::kFloat32) {
    return hn::LoadU(d, static_cast<const float*>(from) + i);
  } else {
    const hn::Rebind<std::uint16_t, D> d16;
    const auto* bits = static_cast<const std::uint16_t*>(from) + i;
    if constexpr (kType == ElementType::kBFloat16) {
      const hn::RebindToUnsigned<D> d32;
      return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, bits))));
    } else {
#if HWY_NATIVE_FMA  // Such sets convert as well.
      return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), hn::LoadU(d16, bits)));
#else
      HWY_ALIGN float floats[HWY_MAX_BYTES / sizeof(float)];
      for (std::size_t lane = 0; lane < hn::Lanes(d); ++lane) {
        floats[lane] = float16_to_float(bits[lane]);
      }
      return hn::Load(d, floats);
#endif
    }
  }
}

template <ElementType kType>
HWY_INLINE V32 load(const void* from, std::size_t i) {
  return load_floats<kType>(D32(), from, i);
}

template <ElementType kType>
HWY_INLINE void store(V32 value, void* to, std::size_t i) {
  if constexpr (kType == ElementType::kFloat32) {
    hn::StoreU(value, D32(), static_cast<float*>(to) + i);
  } else {
    const VU16 bits = kType == ElementType::kBFloat16 ? round_to_bfloat16(value) : round_to_float16(value);
    hn::StoreU(bits, DU16(), static_cast<std::uint16_t*>(to) + i);
  }
}

// --- bf16 and a signed remainder, together a float32 ---

// No float32 rounds to a zero and leaves a remainder below it: such a zero was written by somebody else, and is one.
HWY_INLINE V32 join_remainder(const void* weight, const void* remainder, std::size_t i) {
  const DI32 di;
  const auto high = hn::PromoteTo(DU32(), hn::LoadU(DU16(), static_cast<const std::uint16_t*>(weight) + i));
  const auto low = hn::PromoteTo(di, hn::LoadU(DI16(), static_cast<const std::int16_t*>(remainder) + i));
  const auto is_zero = hn::Eq(hn::And(high, set_bits(0x7FFF)), hn::Zero(DU32()));
  const auto kept = hn::IfThenElse(hn::RebindMask(di, is_zero), hn::Max(low, hn::Zero(di)), low);
  return float_bits(hn::Add(hn::ShiftLeft<16>(high), hn::BitCast(DU32(), kept)));
}

HWY_INLINE void split_remainder(V32 value, void* weight, void* remainder, std::size_t i) {
  // Rounding would turn some NaNs into infinities or zeros: they keep their sign and the quiet bit instead.
  const auto is_nan = hn::RebindMask(DU32(), hn::IsNaN(value));
  const VU32 bits = hn::IfThenElse(is_nan, hn::And(hn::Or(bits_of(value), set_bits(0x7FC00000)), set_bits(0xFFC00000)),
                                   bits_of(value));
  const VU16 high = narrow(hn::ShiftRight<16>(hn::Add(bits, set_bits(0x8000))));
  const VU16 low = narrow(hn::And(bits, set_bits(0xFFFF)));
  hn::StoreU(high, DU16(), static_cast<std::uint16_t*>(weight) + i);
  hn::StoreU(low, DU16(), static_cast<std::uint16_t*>(remainder) + i);
}

// --- weights in one of their forms ---

// A published weight that is not the rounded master was changed by somebody else, and is the weight then.
template <ElementType kPublished>
HWY_INLINE V32 load_master(const void* weight, const void* master, std::size_t i) {
  const V32 exact = load<ElementType::kFloat32>(master, i);
  const VU16 bits = hn::LoadU(DU16(), static_cast<const std::uint16_t*>(weight) + i);
  VU32 rounded;
  if constexpr (kPublished == ElementType::kBFloat16) {
    rounded = bfloat16_bits(exact);
  } else {
    rounded = hn::PromoteTo(DU32(), round_to_float16(exact));
  }
  const auto unchanged = hn::RebindMask(D32(), hn::Eq(hn::PromoteTo(DU32(), bits), rounded));
  return hn::IfThenElse(unchanged, exact, load<kPublished>(weight, i));
}

template <WeightForm kForm>
HWY_INLINE V32 load_weight(const void* weight, const void* master, std::size_t i) {
  if constexpr (kForm == WeightForm::kFloat32) {
    return load<ElementType::kFloat32>(weight, i);
  } else if constexpr (kForm == WeightForm::kBFloat16) {
    return load<ElementType::kBFloat16>(weight, i);
  } else if constexpr (kForm == WeightForm::kFloat16) {
    return load<ElementType::kFloat16>(weight, i);
  } else if constexpr (kForm == WeightForm::kBFloat16AndRemainder) {
    return join_remainder(weight, master, i);
  } else if constexpr (kForm == WeightForm::kMasterToBFloat16) {
    return load_master<ElementType::kBFloat16>(weight, master, i);
  } else {
    return load_master<ElementType::kFloat16>(weight, master, i);
  }
}

template <WeightForm kForm>
HWY_INLINE void store_weight(V32 value, void* weight, void* master, std::size_t i) {
  if constexpr (kForm == WeightForm::kMasterToBFloat16 || kForm == WeightForm::kMasterToFloat16) {
    store<ElementType::kFloat32>(value, master, i);
  }
  if constexpr (kForm == WeightForm::kFloat32) {
    store<ElementType::kFloat32>(value, weight, i);
  } else if constexpr (kForm == WeightForm::kBFloat16AndRemainder) {
    split_remainder(value, weight, master, i);
  } else if constexpr (kForm == WeightForm::kBFloat16 || kForm == WeightForm::kMasterToBFloat16) {
    store<ElementType::kBFloat16>(value, weight, i);
  } else {
    store<ElementType::kFloat16>(value, weight, i);
  }
}

// --- constants and sums with more bits than a float has ---

struct Constant {
  HWY_INLINE explicit Constant(SplitFloat value) : high(hn::Set(D32(), value.high)), low(hn::Set(D32(), value.low)) {}
  V32 high;
  V32 low;
};

// sqrt(x) * c + y; infinite where x is. Precondition: both parts of the constant are above 0.
HWY_INLINE V32 scaled_root(const Constant& c, V32 x, V32 y) {
  const V32 root = hn::Sqrt(x);
  return fused(root, c.high, fused(root, c.low, y));
}

// A number and what its rounding cut off.
struct Wide {
  V32 value;
  V32 rest;
};

// Whether a quotient is so large a part of the weight that what is rounded on the way to it counts.
HWY_INLINE hn::Mask<D32> is_large_step(V32 quotient, V32 w) {
  return hn::Gt(hn::Abs(quotient), hn::Mul(hn::Set(D32(), 0.25F), hn::Abs(w)));
}

// What `difference`, w - quotient, has lost, and `quotient`, dividend / divisor.
HWY_INLINE V32 rest_of_difference(V32 w, V32 quotient, V32 difference, const Wide& dividend, V32 divisor) {
  const V32 quotient_rest = hn::Div(hn::Sub(dividend.rest, fused_minus(quotient, divisor, dividend.value)), divisor);
  const V32 part = hn::Sub(difference, w);
  const V32 difference_rest = hn::Sub(hn::Sub(w, hn::Sub(difference, part)), hn::Add(quotient, part));
  return hn::Sub(difference_rest, quotient_rest);
}

// a * x + b * y + rest, also where the products nearly cancel. An infinite or overflowing sum has no rest.
HWY_INLINE Wide mixed(const Constant& a, V32 x, const Constant& b, V32 y, V32 rest) {
  const V32 first = hn::Mul(a.high, x);
  const V32 second = hn::Mul(b.high, y);
  const V32 first_rest = fused(a.low, x, fused(a.high, x, hn::Neg(first)));
  const V32 second_rest = fused(b.low, y, fused(b.high, y, hn::Neg(second)));
  const V32 sum = hn::Add(first, second);
  const V32 part = hn::Sub(sum, first);
  const V32 sum_rest = hn::Add(hn::Sub(first, hn::Sub(sum, part)), hn::Sub(second, part));
  const V32 rests = hn::Add(hn::Add(hn::Add(first_rest, second_rest), sum_rest), rest);
  const V32 whole = hn::Add(sum, rests);
  const auto finite = hn::IsFinite(sum);
  return {hn::IfThenElse(finite, whole, sum), hn::IfThenElseZero(finite, hn::Sub(rests, hn::Sub(whole, sum)))};
}

// A gradient as the update takes it: scaled, limited, and with the decay of its weight.
struct Scale {
  HWY_INLINE explicit Scale(const GradientScale& scale)
      : divisor(as_float(scale.divisor)),
        factor(as_float(scale.factor)),
        clip_factor(as_float(scale.clip_factor)),
        limit(as_float(scale.limit)),
        one(SplitFloat{1.0F, 0.0F}),
        divides(scale.divisor != 1.0),
        scales(scale.factor != 1.0),
        clips(scale.clip_factor != 1.0),
        limits(scale.limit < std::numeric_limits<double>::infinity()) {}

  HWY_INLINE V32 operator()(V32 g) const {
    if (divides) g = hn::Div(g, divisor);
    if (scales) g = hn::Mul(g, factor);
    if (clips) g = hn::Mul(g, clip_factor);
    if (limits) {
      const auto above = hn::Gt(g, limit);
      g = hn::IfThenElse(hn::Lt(g, hn::Neg(limit)), hn::Neg(limit), hn::IfThenElse(above, limit, g));
    }
    return g;
  }

  HWY_INLINE Wide decayed(V32 gradient, const Constant& decay, V32 weight) const {
    return mixed(decay, weight, one, (*this)(gradient), hn::Zero(D32()));
  }
  HWY_INLINE Wide undecayed(V32 gradient) const { return {(*this)(gradient), hn::Zero(D32())}; }

  static HWY_INLINE V32 as_float(double value) { return hn::Set(D32(), static_cast<float>(value)); }

  V32 divisor;
  V32 factor;
  V32 clip_factor;
  V32 limit;
  Constant one;
  bool divides;
  bool scales;
  bool clips;
  bool limits;
};

}  // namespace spillway::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SPILLWAY_KERNEL_LANES_INL

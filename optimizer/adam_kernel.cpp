#include <spillway/optimizer/adam_kernel.hpp>

#include <cmath>
#include <limits>

#include <spillway/offload/check.hpp>
#include <spillway/optimizer/kernel_pieces.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <spillway/optimizer/adam_kernel.cpp>
#include <hwy/foreach_target.h>

#include <spillway/optimizer/kernel_dispatch-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace spillway::optimizer::HWY_NAMESPACE {

enum AdamStream : std::size_t { kGradient, kWeight, kMaster, kExpAvg, kExpAvgSq, kMaxExpAvgSq, kStreams };

struct AdamConstants {
  HWY_INLINE AdamConstants(const AdamStep& step, const GradientScale& gradient_scale)
      : scale(gradient_scale),
        beta1(step.beta1),
        one_minus_beta1(step.one_minus_beta1),
        beta2(step.beta2),
        one_minus_beta2(step.one_minus_beta2),
        decay(step.decay),
        denominator(step.denominator),
        eps(hn::Set(D32(), step.eps)),
        decays_weight(step.decays_weight),
        decays_gradient(step.decays_gradient) {}
  Scale scale;
  Constant beta1, one_minus_beta1, beta2, one_minus_beta2, decay, denominator;
  V32 eps;
  bool decays_weight;
  bool decays_gradient;
};

// What a product's rounding cuts off can be of no use, infinite or NaN, where a gradient is not far from overflow
// itself.
constexpr float kUsualGradient = 1e18F;

// A sum that is not rounded yet.
struct Sum {
  V32 large;
  V32 small;
};

// beta1 * m + (1 - beta1) * g, also where the products nearly cancel: both are exact but for what one rounding cuts
// off.
HWY_INLINE Sum next_exp_avg(const AdamConstants& c, V32 m, const Wide& g, hn::Mask<D32> usual) {
  const Constant& share = c.one_minus_beta1;
  const V32 part = hn::Mul(share.high, g.value);
  V32 rest = fused(share.low, g.value, fused_minus(share.high, g.value, part));
  if (c.decays_gradient) rest = fused(share.high, g.rest, rest);
  return {fused(c.beta1.high, m, part), fused(c.beta1.low, m, hn::IfThenElseZero(usual, rest))};
}

// beta2 * v + (1 - beta2) * g * g: no cancellation, so its two roundings are all there is to lose.
HWY_INLINE V32 next_exp_avg_sq(const AdamConstants& c, V32 v, const Wide& g, hn::Mask<D32> usual) {
  const Constant& share = c.one_minus_beta2;
  const V32 part = hn::Mul(share.high, g.value);
  V32 rest = hn::Mul(fused(share.low, g.value, fused_minus(share.high, g.value, part)), g.value);
  if (c.decays_gradient) rest = fused(part, hn::Add(g.rest, g.rest), rest);
  const V32 low = fused(c.beta2.low, v, hn::IfThenElseZero(usual, rest));
  return fused(part, g.value, fused(c.beta2.high, v, low));
}

// w - m / root - decay * w, where m is the rounded sum. What is rounded on the way counts where the quotient is no
// small part of the weight; which lanes do is decided for each by itself, so that neighbours never change a result.
HWY_INLINE V32 next_weight(const AdamConstants& c, V32 w, const Sum& sum, V32 m, V32 root) {
  const V32 quotient = hn::Div(m, root);
  const V32 difference = hn::Sub(w, quotient);
  const V32 next = c.decays_weight ? fused(hn::Neg(c.decay.high), w, difference) : difference;
  const auto is_large = is_large_step(quotient, w);
  if (hn::AllFalse(D32(), is_large)) return next;
  const V32 m_rest = hn::Sub(sum.small, hn::Sub(m, sum.large));
  const V32 rest = rest_of_difference(w, quotient, difference, {m, m_rest}, root);
  const V32 low = c.decays_weight ? fused(hn::Neg(c.decay.high), w, rest) : rest;
  return hn::IfThenElse(hn::And(is_large, hn::IsFinite(low)), hn::Add(difference, low), next);
}

template <typename T>
HWY_INLINE void adam_vector(const AdamConstants& c, void* const (&at)[kStreams], std::size_t i) {
  const V32 w = load_weight<T::kWeight>(at[kWeight], at[kMaster], i);
  const V32 gradient = load<T::kGradient>(at[kGradient], i);
  const Wide g = c.decays_gradient ? c.scale.decayed(gradient, c.decay, w) : c.scale.undecayed(gradient);
  const auto usual = hn::Lt(hn::Abs(g.value), hn::Set(D32(), kUsualGradient));
  const Sum sum = next_exp_avg(c, load<T::kState>(at[kExpAvg], i), g, usual);
  const V32 m = hn::Add(sum.large, sum.small);
  V32 v = next_exp_avg_sq(c, load<T::kState>(at[kExpAvgSq], i), g, usual);
  store<T::kState>(m, at[kExpAvg], i);
  store<T::kState>(v, at[kExpAvgSq], i);
  if (at[kMaxExpAvgSq] != nullptr) {
    const V32 largest = load<T::kState>(at[kMaxExpAvgSq], i);
    v = hn::IfThenElse(hn::Gt(largest, v), largest, v);  // A NaN in v stays.
    store<T::kState>(v, at[kMaxExpAvgSq], i);
  }
  const V32 next = next_weight(c, w, sum, m, scaled_root(c.denominator, v, c.eps));
  store_weight<T::kWeight>(next, at[kWeight], at[kMaster], i);
}

void adam_range(const AdamTensor& tensor, offload::Range range, const KernelTypes& types, const GradientScale& scale) {
  with_types(types, [&]<typename T>(T) HWY_ATTR {
    const AdamConstants constants(*tensor.step, scale);
    const Stream streams[kStreams] = {
        {const_cast<void*>(tensor.gradient), T::kGradientBytes, false},
        {tensor.weight, T::kWeightBytes, true},
        {T::kMasterBytes == 0 ? nullptr : tensor.master, T::kMasterBytes, true},
        {tensor.exp_avg, T::kStateBytes, true},
        {tensor.exp_avg_sq, T::kStateBytes, true},
        {tensor.max_exp_avg_sq, T::kStateBytes, true},
    };
    for_vectors(
        streams, range.begin,
        range.end, [&](void* const(&at)[kStreams], std::size_t i) HWY_ATTR __attribute__((always_inline)) {
          adam_vector<T>(constants, at, i);
        });
  });
}

}  // namespace spillway::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::optimizer {

HWY_EXPORT(adam_range);

AdamStep adam_step(const AdamRule& rule, std::uint64_t step) noexcept {
  const auto count = static_cast<double>(step);
  const double step_size = rule.lr / (1.0 - std::pow(rule.beta1, count));
  const double root = std::sqrt(1.0 - std::pow(rule.beta2, count));
  AdamStep result{
      .beta1 = split_positive(rule.beta1),
      .one_minus_beta1 = split_positive(1.0 - rule.beta1),
      .beta2 = split_positive(rule.beta2),
      .one_minus_beta2 = split_positive(1.0 - rule.beta2),
      .decay = split_float(rule.decoupled ? rule.lr * rule.weight_decay : rule.weight_decay),
      .denominator = split_positive(1.0 / (root * step_size)),
      .eps = static_cast<float>(rule.eps / step_size),
      .decays_weight = rule.decoupled && rule.weight_decay != 0.0,
      .decays_gradient = !rule.decoupled && rule.weight_decay != 0.0,
  };
  // A step too small for the quotient, such as with a learning rate of 0, moves nothing.
  if (!std::isfinite(result.denominator.high) || !std::isfinite(result.eps)) {
    result.denominator = split_positive(1.0);
    result.eps = std::numeric_limits<float>::infinity();
  }
  return result;
}

void adam_update(std::span<const AdamTensor> tensors, const KernelTypes& types, const GradientScale& scale,
                 const offload::Parallel& parallel) {
  KernelPieces pieces(tensors.size());
  for (const AdamTensor& tensor : tensors) {
    SPILLWAY_CHECK(tensor.numel == 0 || (tensor.gradient != nullptr && tensor.weight != nullptr &&
                                         tensor.exp_avg != nullptr && tensor.exp_avg_sq != nullptr),
                   "a tensor without memory");
    SPILLWAY_CHECK(tensor.numel == 0 || tensor.master != nullptr || master_bytes_of(types.weight) == 0,
                   "a weight in two parts without the second");
    pieces.add(tensor.numel);
  }
  pieces.run(parallel, 64, [&](std::size_t tensor, offload::Range range) {
    HWY_DYNAMIC_DISPATCH(adam_range)(tensors[tensor], range, types, scale);
  });
}

}  // namespace spillway::optimizer
#endif  // HWY_ONCE

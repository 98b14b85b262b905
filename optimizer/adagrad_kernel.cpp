#include <spillway/optimizer/adagrad_kernel.hpp>

#include <cmath>
#include <limits>

#include <spillway/offload/check.hpp>
#include <spillway/optimizer/kernel_pieces.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <spillway/optimizer/adagrad_kernel.cpp>
#include <hwy/foreach_target.h>

#include <spillway/optimizer/kernel_dispatch-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace spillway::optimizer::HWY_NAMESPACE {

enum AdagradStream : std::size_t { kGradient, kWeight, kMaster, kSum, kStreams };

struct AdagradConstants {
  HWY_INLINE AdagradConstants(const AdagradStep& step, const GradientScale& gradient_scale)
      : scale(gradient_scale),
        weight_decay(step.weight_decay),
        denominator(step.denominator),
        eps(hn::Set(D32(), step.eps)),
        decays(step.decays) {}
  Scale scale;
  Constant weight_decay, denominator;
  V32 eps;
  bool decays;
};

template <typename T>
HWY_INLINE void adagrad_vector(const AdagradConstants& c, void* const (&at)[kStreams], std::size_t i) {
  const V32 w = load_weight<T::kWeight>(at[kWeight], at[kMaster], i);
  const V32 gradient = load<T::kGradient>(at[kGradient], i);
  const Wide g = c.decays ? c.scale.decayed(gradient, c.weight_decay, w) : c.scale.undecayed(gradient);
  const V32 sum = fused(g.value, g.value, load<T::kState>(at[kSum], i));
  store<T::kState>(sum, at[kSum], i);
  const V32 root = scaled_root(c.denominator, sum, c.eps);
  const V32 quotient = hn::Div(g.value, root);
  V32 next = hn::Sub(w, quotient);
  const auto is_large = is_large_step(quotient, w);
  if (!hn::AllFalse(D32(), is_large)) {
    const V32 rest = rest_of_difference(w, quotient, next, g, root);
    next = hn::IfThenElse(hn::And(is_large, hn::IsFinite(rest)), hn::Add(next, rest), next);
  }
  store_weight<T::kWeight>(next, at[kWeight], at[kMaster], i);
}

void adagrad_range(const AdagradTensor& tensor, offload::Range range, const KernelTypes& types,
                   const GradientScale& scale) {
  with_types(types, [&]<typename T>(T) HWY_ATTR {
    const AdagradConstants constants(*tensor.step, scale);
    const Stream streams[kStreams] = {
        {const_cast<void*>(tensor.gradient), T::kGradientBytes, false},
        {tensor.weight, T::kWeightBytes, true},
        {T::kMasterBytes == 0 ? nullptr : tensor.master, T::kMasterBytes, true},
        {tensor.sum, T::kStateBytes, true},
    };
    for_vectors(
        streams, range.begin,
        range.end, [&](void* const(&at)[kStreams], std::size_t i) HWY_ATTR __attribute__((always_inline)) {
          adagrad_vector<T>(constants, at, i);
        });
  });
}

}  // namespace spillway::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::optimizer {

HWY_EXPORT(adagrad_range);

AdagradStep adagrad_step(const AdagradRule& rule, std::uint64_t step) noexcept {
  const double rate = rule.lr / (1.0 + (static_cast<double>(step) - 1.0) * rule.lr_decay);
  AdagradStep result{
      .weight_decay = split_float(rule.weight_decay),
      .denominator = split_positive(1.0 / rate),
      .eps = static_cast<float>(rule.eps / rate),
      .decays = rule.weight_decay != 0.0,
  };
  // A step too small for the quotient, such as with a learning rate of 0, moves nothing.
  if (!std::isfinite(result.denominator.high) || !std::isfinite(result.eps)) {
    result.denominator = split_positive(1.0);
    result.eps = std::numeric_limits<float>::infinity();
  }
  return result;
}

void adagrad_update(std::span<const AdagradTensor> tensors, const KernelTypes& types, const GradientScale& scale,
                    const offload::Parallel& parallel) {
  KernelPieces pieces(tensors.size());
  for (const AdagradTensor& tensor : tensors) {
    SPILLWAY_CHECK(
        tensor.numel == 0 || (tensor.gradient != nullptr && tensor.weight != nullptr && tensor.sum != nullptr),
        "a tensor without memory");
    SPILLWAY_CHECK(tensor.numel == 0 || tensor.master != nullptr || master_bytes_of(types.weight) == 0,
                   "a weight in two parts without the second");
    pieces.add(tensor.numel);
  }
  pieces.run(parallel, 64, [&](std::size_t tensor, offload::Range range) {
    HWY_DYNAMIC_DISPATCH(adagrad_range)(tensors[tensor], range, types, scale);
  });
}

}  // namespace spillway::optimizer
#endif  // HWY_ONCE

#include <spillway/optimizer/sgd_kernel.hpp>

#include <spillway/offload/check.hpp>
#include <spillway/optimizer/kernel_pieces.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <spillway/optimizer/sgd_kernel.cpp>
#include <hwy/foreach_target.h>

#include <spillway/optimizer/kernel_dispatch-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace spillway::optimizer::HWY_NAMESPACE {

enum SgdStream : std::size_t { kGradient, kWeight, kMaster, kMomentum, kStreams };

struct SgdConstants {
  HWY_INLINE SgdConstants(const SgdStep& step, const GradientScale& gradient_scale)
      : scale(gradient_scale),
        lr(step.lr),
        momentum(step.momentum),
        one_minus_dampening(step.one_minus_dampening),
        weight_decay(step.weight_decay),
        decays(step.decays),
        nesterov(step.nesterov) {}
  Scale scale;
  Constant lr, momentum, one_minus_dampening, weight_decay;
  bool decays;
  bool nesterov;
};

template <typename T>
HWY_INLINE void sgd_vector(const SgdConstants& c, bool first, void* const (&at)[kStreams], std::size_t i) {
  const V32 w = load_weight<T::kWeight>(at[kWeight], at[kMaster], i);
  const V32 gradient = load<T::kGradient>(at[kGradient], i);
  Wide g = c.decays ? c.scale.decayed(gradient, c.weight_decay, w) : c.scale.undecayed(gradient);
  if (at[kMomentum] != nullptr) {
    Wide buffer = g;
    if (!first) {
      const V32 rest = hn::Mul(c.one_minus_dampening.high, g.rest);
      buffer = mixed(c.momentum, load<T::kState>(at[kMomentum], i), c.one_minus_dampening, g.value, rest);
    }
    store<T::kState>(buffer.value, at[kMomentum], i);
    g = c.nesterov ? mixed(c.momentum, buffer.value, c.scale.one, g.value, fused(c.momentum.high, buffer.rest, g.rest))
                   : buffer;
  }
  const V32 back = hn::Neg(g.value);
  store_weight<T::kWeight>(fused(c.lr.high, back, fused(c.lr.low, back, w)), at[kWeight], at[kMaster], i);
}

void sgd_range(const SgdTensor& tensor, offload::Range range, const KernelTypes& types, const GradientScale& scale) {
  with_types(types, [&]<typename T>(T) HWY_ATTR {
    const SgdConstants constants(*tensor.step, scale);
    const Stream streams[kStreams] = {
        {const_cast<void*>(tensor.gradient), T::kGradientBytes, false},
        {tensor.weight, T::kWeightBytes, true},
        {T::kMasterBytes == 0 ? nullptr : tensor.master, T::kMasterBytes, true},
        {tensor.momentum_buffer, T::kStateBytes, true},
    };
    const bool first = tensor.first;
    for_vectors(
        streams, range.begin,
        range.end, [&](void* const(&at)[kStreams], std::size_t i) HWY_ATTR __attribute__((always_inline)) {
          sgd_vector<T>(constants, first, at, i);
        });
  });
}

}  // namespace spillway::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::optimizer {

HWY_EXPORT(sgd_range);

SgdStep sgd_step(const SgdRule& rule) noexcept {
  return {.lr = split_float(rule.lr),
          .momentum = split_float(rule.momentum),
          .one_minus_dampening = split_float(1.0 - rule.dampening),
          .weight_decay = split_float(rule.weight_decay),
          .decays = rule.weight_decay != 0.0,
          .nesterov = rule.nesterov};
}

void sgd_update(std::span<const SgdTensor> tensors, const KernelTypes& types, const GradientScale& scale,
                const offload::Parallel& parallel) {
  KernelPieces pieces(tensors.size());
  for (const SgdTensor& tensor : tensors) {
    SPILLWAY_CHECK(tensor.numel == 0 || (tensor.gradient != nullptr && tensor.weight != nullptr),
                   "a tensor without memory");
    SPILLWAY_CHECK(tensor.numel == 0 || tensor.master != nullptr || master_bytes_of(types.weight) == 0,
                   "a weight in two parts without the second");
    pieces.add(tensor.numel);
  }
  pieces.run(parallel, 64, [&](std::size_t tensor, offload::Range range) {
    HWY_DYNAMIC_DISPATCH(sgd_range)(tensors[tensor], range, types, scale);
  });
}

}  // namespace spillway::optimizer
#endif  // HWY_ONCE

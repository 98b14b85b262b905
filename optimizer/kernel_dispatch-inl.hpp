// From types that are known at run time to a kernel that was compiled for them. Included by the kernels' sources only,
// below foreach_target.h.
#if defined(SPILLWAY_KERNEL_DISPATCH_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_KERNEL_DISPATCH_INL
#undef SPILLWAY_KERNEL_DISPATCH_INL
#else
#define SPILLWAY_KERNEL_DISPATCH_INL
#endif

#include <spillway/optimizer/kernel_lanes-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace spillway::optimizer::HWY_NAMESPACE {

template <ElementType kGradientType, WeightForm kWeightForm, ElementType kStateType>
struct Types {
  static constexpr ElementType kGradient = kGradientType;
  static constexpr WeightForm kWeight = kWeightForm;
  static constexpr ElementType kState = kStateType;
  static constexpr std::size_t kGradientBytes = kGradient == ElementType::kFloat32 ? 4 : 2;
  static constexpr std::size_t kStateBytes = kState == ElementType::kFloat32 ? 4 : 2;
  static constexpr std::size_t kWeightBytes = kWeight == WeightForm::kFloat32 ? 4 : 2;
  static constexpr std::size_t kMasterBytes =
      kWeight == WeightForm::kMasterToBFloat16 || kWeight == WeightForm::kMasterToFloat16 ? 4
      : kWeight == WeightForm::kBFloat16AndRemainder                                      ? 2
                                                                                          : 0;
};

template <ElementType kGradient, WeightForm kWeight, typename Run>
HWY_INLINE void with_state(ElementType state, const Run& run) {
  if (state == ElementType::kFloat32) {
    run(Types<kGradient, kWeight, ElementType::kFloat32>());
  } else {
    run(Types<kGradient, kWeight, ElementType::kBFloat16>());
  }
}

template <ElementType kGradient, typename Run>
HWY_INLINE void with_weight(const KernelTypes& types, const Run& run) {
  switch (types.weight) {
    case WeightForm::kFloat32:
      return with_state<kGradient, WeightForm::kFloat32>(types.state, run);
    case WeightForm::kBFloat16:
      return with_state<kGradient, WeightForm::kBFloat16>(types.state, run);
    case WeightForm::kFloat16:
      return with_state<kGradient, WeightForm::kFloat16>(types.state, run);
    case WeightForm::kMasterToBFloat16:
      return with_state<kGradient, WeightForm::kMasterToBFloat16>(types.state, run);
    case WeightForm::kMasterToFloat16:
      return with_state<kGradient, WeightForm::kMasterToFloat16>(types.state, run);
    case WeightForm::kBFloat16AndRemainder:
      return with_state<kGradient, WeightForm::kBFloat16AndRemainder>(types.state, run);
  }
}

// run(Types<…>()) for the types that are asked for.
template <typename Run>
HWY_INLINE void with_types(const KernelTypes& types, const Run& run) {
  switch (types.gradient) {
    case ElementType::kFloat32:
      return with_weight<ElementType::kFloat32>(types, run);
    case ElementType::kBFloat16:
      return with_weight<ElementType::kBFloat16>(types, run);
    case ElementType::kFloat16:
      return with_weight<ElementType::kFloat16>(types, run);
  }
}

// One run of memory that a kernel walks: where it lies, the size of its elements, whether the kernel writes it.
struct Stream {
  void* memory;
  std::size_t element_bytes;
  bool written;
};

// Calls body(streams' memory, element) for every full vector of `range`, and for the rest on copies in a full vector,
// so that each element goes through the same instructions wherever the range ends. Absent streams are null.
// A body of some length wants to be always_inline: GCC calls it for every vector otherwise, and reads every constant
// anew.
template <std::size_t kStreams, typename Body>
HWY_INLINE void for_vectors(const Stream (&streams)[kStreams], std::size_t begin, std::size_t end, const Body& body) {
  const std::size_t lanes = hn::Lanes(D32());
  void* memory[kStreams];
  for (std::size_t s = 0; s < kStreams; ++s) {
    memory[s] = streams[s].memory;
  }
  std::size_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    body(memory, i);
  }
  if (i == end) {
    return;
  }
  HWY_ALIGN unsigned char rest[kStreams][HWY_MAX_BYTES] = {};
  for (std::size_t s = 0; s < kStreams; ++s) {
    const std::size_t bytes = streams[s].element_bytes;
    if (memory[s] != nullptr) {
      std::memcpy(rest[s], static_cast<const unsigned char*>(memory[s]) + i * bytes, (end - i) * bytes);
      memory[s] = rest[s];
    }
  }
  body(memory, 0);
  for (std::size_t s = 0; s < kStreams; ++s) {
    const std::size_t bytes = streams[s].element_bytes;
    if (streams[s].memory != nullptr && streams[s].written) {
      std::memcpy(static_cast<unsigned char*>(streams[s].memory) + i * bytes, rest[s], (end - i) * bytes);
    }
  }
}

}  // namespace spillway::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SPILLWAY_KERNEL_DISPATCH_INL

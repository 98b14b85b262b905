#include <spillway/optimizer/gradient_kernel.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include <spillway/offload/check.hpp>
#include <spillway/optimizer/kernel_pieces.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <spillway/optimizer/gradient_kernel.cpp>
#include <hwy/foreach_target.h>

#include <spillway/optimizer/kernel_dispatch-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace spillway::optimizer::HWY_NAMESPACE {

// Element i goes to sum i % 8. The square of a float is exact in double, so that fused or not makes no difference.
constexpr std::size_t kSums = 8;
using D64 = hn::CappedTag<double, kSums>;
using V64 = hn::Vec<D64>;
constexpr std::size_t kVectors = kSums / hn::MaxLanes(D64());

template <ElementType kType>
HWY_INLINE void add_squares(const void* elements, std::size_t i, V64 (&sums)[kVectors]) {
  for (std::size_t v = 0; v < kVectors; ++v) {
    const auto floats = load_floats<kType>(hn::Rebind<float, D64>(), elements, i + v * hn::MaxLanes(D64()));
    const V64 values = hn::PromoteTo(D64(), floats);
    sums[v] = hn::MulAdd(values, values, sums[v]);
  }
}

template <ElementType kType>
HWY_INLINE double block_squares(const void* elements, std::size_t begin, std::size_t end) {
  constexpr std::size_t kBytes = kType == ElementType::kFloat32 ? 4 : 2;
  V64 sums[kVectors];
  for (V64& sum : sums) {
    sum = hn::Zero(D64());
  }
  std::size_t i = begin;
  for (; i + kSums <= end; i += kSums) {
    add_squares<kType>(elements, i, sums);
  }
  if (i < end) {  // Zeros after the end change no sum.
    HWY_ALIGN unsigned char rest[kSums * kBytes] = {};
    std::memcpy(rest, static_cast<const unsigned char*>(elements) + i * kBytes, (end - i) * kBytes);
    add_squares<kType>(rest, 0, sums);
  }
  HWY_ALIGN double s[kSums];
  for (std::size_t v = 0; v < kVectors; ++v) {
    hn::Store(sums[v], D64(), s + v * hn::MaxLanes(D64()));
  }
  return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

double squares_of_block(const GradientRun& gradient, std::size_t begin, std::size_t end) {
  switch (gradient.type) {
    case ElementType::kFloat32:
      return block_squares<ElementType::kFloat32>(gradient.elements, begin, end);
    case ElementType::kBFloat16:
      return block_squares<ElementType::kBFloat16>(gradient.elements, begin, end);
    default:
      return block_squares<ElementType::kFloat16>(gradient.elements, begin, end);
  }
}

}  // namespace spillway::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::optimizer {
namespace {

HWY_EXPORT(squares_of_block);

std::uint64_t blocks_of(const GradientRun& gradient) noexcept {
  return gradient.numel / kSquaresBlockNumel + (gradient.numel % kSquaresBlockNumel != 0 ? 1 : 0);
}

}  // namespace

std::uint64_t squares_blocks(std::span<const GradientRun> gradients) noexcept {
  std::uint64_t blocks = 0;
  for (const GradientRun& gradient : gradients) {
    blocks += blocks_of(gradient);
  }
  return blocks;
}

bool gradient_squares(std::span<const GradientRun> gradients, std::span<double> sums,
                      const offload::Parallel& parallel) {
  SPILLWAY_CHECK(sums.size() == squares_blocks(gradients), "wanted one sum for every block");
  KernelPieces pieces(gradients.size());
  std::vector<std::uint64_t> first_block;
  first_block.reserve(gradients.size());
  std::uint64_t blocks = 0;
  for (const GradientRun& gradient : gradients) {
    pieces.add(gradient.numel);
    first_block.push_back(blocks);
    blocks += blocks_of(gradient);
  }
  std::atomic<bool> finite = true;
  pieces.run(parallel, kSquaresBlockNumel, [&](std::size_t g, offload::Range range) {
    for (std::uint64_t begin = range.begin; begin < range.end; begin += kSquaresBlockNumel) {
      const std::uint64_t end = std::min(begin + kSquaresBlockNumel, range.end);
      const double sum = HWY_DYNAMIC_DISPATCH(squares_of_block)(gradients[g], begin, end);
      sums[first_block[g] + begin / kSquaresBlockNumel] = sum;
      if (!std::isfinite(sum)) {
        finite.store(false, std::memory_order_relaxed);
      }
    }
  });
  return finite.load(std::memory_order_relaxed);
}

}  // namespace spillway::optimizer
#endif  // HWY_ONCE

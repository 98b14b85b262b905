#include <spillway/optimizer/gradient_transform.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/clamp.h>
#include <ATen/ops/empty_like.h>

#include <spillway/offload/parallel.hpp>

namespace spillway::optimizer {
namespace {

using Kind = GradientTransform::Kind;

// What one thread copies and transforms while it is in its cache.
constexpr std::uint64_t kPieceNumel = 16'384;

void transform_one(const GradientTransform& transform, std::span<float> elements) noexcept {
  const auto value = static_cast<float>(transform.value);
  switch (transform.kind) {
    case Kind::kDivide:
      for (float& element : elements) {
        element /= value;
      }
      return;
    case Kind::kMultiply:
      for (float& element : elements) {
        element *= value;
      }
      return;
    case Kind::kLimit:
      for (float& element : elements) {
        element = element < -value ? -value : element > value ? value : element;  // NaN stays.
      }
      return;
  }
}

}  // namespace

void transform(std::span<const GradientTransform> transforms, std::span<float> elements) noexcept {
  for (const GradientTransform& each : transforms) {
    transform_one(each, elements);
  }
}

void transform(std::span<const GradientTransform> transforms, at::Tensor& gradient) {
  for (const GradientTransform& each : transforms) {
    switch (each.kind) {
      case Kind::kDivide:
        gradient.div_(each.value);
        break;
      case Kind::kMultiply:
        gradient.mul_(each.value);
        break;
      case Kind::kLimit:
        at::clamp_(gradient, -each.value, each.value);
        break;
    }
  }
}

void copy_as_floats(const at::Tensor& tensor, std::uint64_t begin, std::span<float> to) {
  const auto copy = [&](const auto* from) { std::copy_n(from + begin, to.size(), to.begin()); };
  switch (tensor.scalar_type()) {
    case at::kBFloat16:
      return copy(tensor.const_data_ptr<at::BFloat16>());
    case at::kHalf:
      return copy(tensor.const_data_ptr<at::Half>());
    default:
      return copy(tensor.const_data_ptr<float>());
  }
}

at::Tensor transformed(const at::Tensor& sum, std::span<const GradientTransform> transforms,
                       const offload::Parallel& parallel) {
  if (transforms.empty()) {
    return sum;
  }
  if (sum.scalar_type() == at::kDouble) {
    at::Tensor result = sum.clone(at::MemoryFormat::Preserve);
    transform(transforms, result);
    return result;
  }
  at::Tensor result = at::empty_like(sum, sum.options().dtype(at::kFloat), at::MemoryFormat::Preserve);
  auto* const to = result.mutable_data_ptr<float>();
  parallel.for_ranges(static_cast<std::uint64_t>(sum.numel()), kPieceNumel, [&](offload::Range range) {
    const std::span<float> piece(to + range.begin, range.size());
    copy_as_floats(sum, range.begin, piece);
    transform(transforms, piece);
  });
  return result;
}

std::optional<GradientScale> scale_of(std::span<const GradientTransform> transforms) noexcept {
  GradientScale scale;
  auto next = transforms.begin();
  const auto take = [&](Kind kind, double& value) {
    if (next != transforms.end() && next->kind == kind) value = (next++)->value;
  };
  take(Kind::kDivide, scale.divisor);
  take(Kind::kMultiply, scale.factor);
  take(Kind::kMultiply, scale.clip_factor);
  take(Kind::kLimit, scale.limit);
  return next == transforms.end() ? std::optional(scale) : std::nullopt;
}

std::vector<GradientTransform> transforms_of(const GradientScale& scale) {
  std::vector<GradientTransform> transforms;
  if (scale.divisor != 1.0) transforms.push_back({Kind::kDivide, scale.divisor});
  if (scale.factor != 1.0) transforms.push_back({Kind::kMultiply, scale.factor});
  if (scale.clip_factor != 1.0) transforms.push_back({Kind::kMultiply, scale.clip_factor});
  if (scale.limit < std::numeric_limits<double>::infinity()) transforms.push_back({Kind::kLimit, scale.limit});
  return transforms;
}

}  // namespace spillway::optimizer

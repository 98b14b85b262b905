#pragma once

#include <cstdint>
#include <vector>

namespace spillway::optimizer {

enum class GradientType : std::uint8_t { kFloat32, kFloat16, kBFloat16 };

/// A gradient as it lies in memory: `numel` elements in a row, owned by the caller.
struct GradientSpan {
  void* data = nullptr;
  std::uint64_t numel = 0;
  GradientType type = GradientType::kFloat32;
};

/// Multiplies every element by `inverse_scale`, in place, and says whether any was infinite or NaN before that. The
/// product is taken in float32 and rounded once to the gradient's type, as LibTorch does. Host memory; one thread. This
/// is what the CUDA kernel is compared with.
[[nodiscard]] bool unscale_and_check(const std::vector<GradientSpan>& gradients, float inverse_scale) noexcept;

}  // namespace spillway::optimizer

#include <spillway/optimizer/unscale.hpp>

#include <cmath>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace spillway::optimizer {
namespace {

template <typename Element>
bool unscale(const GradientSpan& gradient, float inverse_scale) noexcept {
  auto* elements = static_cast<Element*>(gradient.data);
  bool found = false;
  for (std::uint64_t i = 0; i < gradient.numel; ++i) {
    const auto value = static_cast<float>(elements[i]);
    found |= !std::isfinite(value);
    elements[i] = static_cast<Element>(value * inverse_scale);
  }
  return found;
}

}  // namespace

bool unscale_and_check(const std::vector<GradientSpan>& gradients, float inverse_scale) noexcept {
  bool found = false;
  for (const GradientSpan& gradient : gradients) {
    switch (gradient.type) {
      case GradientType::kFloat32:
        found |= unscale<float>(gradient, inverse_scale);
        break;
      case GradientType::kFloat16:
        found |= unscale<c10::Half>(gradient, inverse_scale);
        break;
      case GradientType::kBFloat16:
        found |= unscale<c10::BFloat16>(gradient, inverse_scale);
        break;
    }
  }
  return found;
}

}  // namespace spillway::optimizer

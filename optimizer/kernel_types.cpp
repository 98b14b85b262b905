#include <spillway/optimizer/kernel_types.hpp>

#include <cmath>

#include <hwy/targets.h>

#include <spillway/offload/error.hpp>

namespace spillway::optimizer {

SplitFloat split_positive(double value) noexcept {
  auto high = static_cast<float>(value);
  if (value == 0.0 || !std::isfinite(high)) return {high, 0.0F};
  if (static_cast<double>(high) >= value) high = std::nextafter(high, 0.0F);
  return {high, static_cast<float>(value - static_cast<double>(high))};
}

SplitFloat split_float(double value) noexcept {
  const auto high = static_cast<float>(value);
  const double rest = value - static_cast<double>(high);
  return {high, std::isfinite(rest) ? static_cast<float>(rest) : 0.0F};
}

std::uint64_t bytes_of(ElementType type) noexcept { return type == ElementType::kFloat32 ? 4 : 2; }

std::uint64_t weight_bytes_of(WeightForm form) noexcept { return form == WeightForm::kFloat32 ? 4 : 2; }

std::uint64_t master_bytes_of(WeightForm form) noexcept {
  switch (form) {
    case WeightForm::kMasterToBFloat16:
    case WeightForm::kMasterToFloat16:
      return 4;
    case WeightForm::kBFloat16AndRemainder:
      return 2;
    default:
      return 0;
  }
}

std::vector<std::string> kernel_instruction_sets() {
  std::vector<std::string> names;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    names.emplace_back(hwy::TargetName(target));
  }
  return names;
}

std::string kernel_instruction_set() { return kernel_instruction_sets().front(); }

void use_kernel_instruction_set(std::string_view name) {
  hwy::SetSupportedTargetsForTest(0);
  std::int64_t chosen = 0;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    chosen = hwy::TargetName(target) == name ? target : chosen;
  }
  if (!name.empty() && chosen == 0) {
    throw ConfigError("this machine has no instruction set " + std::string(name) + " that kernels are compiled for");
  }
  hwy::SetSupportedTargetsForTest(chosen);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace spillway::optimizer

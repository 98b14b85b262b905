#include <spillway/optimizer/kernel_tensor.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

namespace spillway::optimizer {

std::optional<ElementType> kernel_element_type(at::ScalarType type) noexcept {
  switch (type) {
    case at::kFloat:
      return ElementType::kFloat32;
    case at::kBFloat16:
      return ElementType::kBFloat16;
    case at::kHalf:
      return ElementType::kFloat16;
    default:
      return std::nullopt;
  }
}

WeightForm weight_form(ElementType type, MasterFormat masters) noexcept {
  switch (type) {
    case ElementType::kFloat32:
      return WeightForm::kFloat32;
    case ElementType::kBFloat16:
      return masters == MasterFormat::kNone      ? WeightForm::kBFloat16
             : masters == MasterFormat::kFloat32 ? WeightForm::kMasterToBFloat16
                                                 : WeightForm::kBFloat16AndRemainder;
    case ElementType::kFloat16:
      return masters == MasterFormat::kNone ? WeightForm::kFloat16 : WeightForm::kMasterToFloat16;
  }
  return WeightForm::kFloat32;
}

std::string kernel_refusal(const at::Tensor& parameter) {
  if (parameter.layout() != at::kStrided) {
    return "is sparse";
  }
  if (!parameter.is_cpu()) {
    return "is on " + parameter.device().str();
  }
  if (!kernel_element_type(parameter.scalar_type())) {
    return std::string("is ") + c10::toString(parameter.scalar_type());
  }
  if (parameter.numel() == 0) {
    return "has no elements";
  }
  if (!parameter.is_non_overlapping_and_dense()) {
    return "has gaps between its elements, or elements that share memory";
  }
  return {};
}

at::Tensor in_order_of(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (gradient.strides() == parameter.strides() || (gradient.is_contiguous() && parameter.is_contiguous())) {
    return gradient;
  }
  return at::empty_strided(parameter.sizes(), parameter.strides(), gradient.options()).copy_(gradient);
}

}  // namespace spillway::optimizer

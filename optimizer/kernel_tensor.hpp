#pragma once

#include <optional>
#include <string>

#include <c10/core/ScalarType.h>

#include <spillway/optimizer/kernel_types.hpp>
#include <spillway/optimizer/state_format.hpp>

namespace at {
class Tensor;
}

namespace spillway::optimizer {

/// The kernels' name for a type; none for types that they do not know, such as float64.
[[nodiscard]] std::optional<ElementType> kernel_element_type(at::ScalarType type) noexcept;

/// How kernels keep a weight of this type.
[[nodiscard]] WeightForm weight_form(ElementType type, MasterFormat masters) noexcept;

/// Why kernels can't update this parameter in place: "is Double", "is on cuda:0", …; empty where they can.
[[nodiscard]] std::string kernel_refusal(const at::Tensor& parameter);

/// `gradient` with its elements in the order in memory that `parameter` has, which is dense and of its size: itself
/// where that is so (the parameter is only looked at for its strides), else a copy.
[[nodiscard]] at::Tensor in_order_of(const at::Tensor& parameter, const at::Tensor& gradient);

}  // namespace spillway::optimizer

#include <spillway/optimizer/parameter_list.hpp>

#include <unordered_set>

#include <ATen/OpMathType.h>
#include <ATen/core/Formatting.h>
#include <ATen/ops/empty.h>

#include <spillway/offload/error.hpp>

namespace spillway::optimizer {
namespace {

std::string text_of(at::IntArrayRef sizes) {
  std::string text;
  for (const std::int64_t size : sizes) {
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  }
  return "[" + text + "]";
}

std::vector<std::int64_t> gradient_strides_of(const at::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense()) {
    return parameter.strides().vec();
  }
  return at::empty(parameter.sizes(), at::device(at::kMeta)).strides().vec();
}

}  // namespace

at::ScalarType ListedParameter::sum_type() const { return at::toOpMathType(tensor.scalar_type()); }

std::size_t ParameterList::append(const ParamGroups& groups) {
  const std::size_t first = parameters_.size();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < groups[g].params().size(); ++i) {
      const at::Tensor& parameter = groups[g].params()[i];
      std::string name = "parameter " + std::to_string(i) + " of group " + std::to_string(g);
      if (parameter.layout() != at::kStrided) {
        throw ConfigError(name + " is sparse; gradients that are taken need dense parameters");
      }
      if (!numbers_.emplace(parameter.unsafeGetTensorImpl(), parameters_.size()).second) {
        continue;
      }
      parameters_.push_back({parameter, std::move(name), parameter.sizes().vec(), gradient_strides_of(parameter)});
      options_.push_back(parameter.options());
      strides_.push_back(parameter.strides().vec());
    }
  }
  return first;
}

std::size_t ParameterList::count_new(const ParamGroups& groups) const {
  std::unordered_set<const c10::TensorImpl*> found;
  for (const auto& group : groups) {
    for (const at::Tensor& parameter : group.params()) {
      if (numbers_.count(parameter.unsafeGetTensorImpl()) == 0) {
        found.insert(parameter.unsafeGetTensorImpl());
      }
    }
  }
  return found.size();
}

std::optional<std::size_t> ParameterList::find(const at::Tensor& parameter) const {
  const auto found = numbers_.find(parameter.unsafeGetTensorImpl());
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

std::string ParameterList::describe(std::size_t number) const {
  const ListedParameter& listed = parameters_[number];
  return listed.name + ", " + c10::toString(listed.tensor.scalar_type()) + " " + text_of(listed.sizes) +
         (listed.tensor.requires_grad() ? "" : ", frozen");
}

void ParameterList::check_unchanged() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ListedParameter& listed = parameters_[i];
    if (listed.tensor.sizes() != listed.sizes || listed.tensor.strides() != strides_[i]) {
      throw Error(listed.name + " was resized since the optimizer was wrapped: it was " + text_of(listed.sizes) +
                  " and is " + text_of(listed.tensor.sizes()) + "; wrap an optimizer over the new parameter");
    }
    if (listed.tensor.device() != options_[i].device() || listed.tensor.dtype() != options_[i].dtype()) {
      throw Error(listed.name + " was moved or converted since the optimizer was wrapped: it was " +
                  c10::toString(c10::typeMetaToScalarType(options_[i].dtype())) + " on " + options_[i].device().str() +
                  " and is " + c10::toString(listed.tensor.scalar_type()) + " on " + listed.tensor.device().str() +
                  "; move the model first, then wrap");
    }
    if (listed.tensor.grad().defined()) {
      throw Error(
          listed.name +
          " has a .grad at the step: gradients are taken while backward runs, and this one came another way, or "
          "a hook that was set later took the place of Spillway's; let backward make it, and chain hooks");
    }
  }
}

}  // namespace spillway::optimizer

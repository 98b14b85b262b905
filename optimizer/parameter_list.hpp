#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

namespace spillway::optimizer {

/// A parameter, and what it was when it was listed.
struct ListedParameter {
  at::Tensor tensor;
  std::string name;  ///< "parameter 3 of group 0": for messages.
  std::vector<std::int64_t> sizes;
  /// Of its gradient: those of the parameter where its elements lie dense in memory, else those of contiguous elements.
  std::vector<std::int64_t> gradient_strides;

  /// In that element type sums are made: float32, or float64 for a parameter of it.
  [[nodiscard]] at::ScalarType sum_type() const;
};

/// The parameters of an optimizer's groups in their order, tied ones once, with numbers that do not change. One caller
/// at a time may change it.
class ParameterList {
 public:
  using ParamGroups = std::vector<torch::optim::OptimizerParamGroup>;

  /// Lists the parameters of `groups` that are not listed yet. @returns the number of the first one.
  std::size_t append(const ParamGroups& groups);
  /// How many append() would find. Cheap where there are none.
  [[nodiscard]] std::size_t count_new(const ParamGroups& groups) const;

  [[nodiscard]] std::size_t size() const noexcept { return parameters_.size(); }
  [[nodiscard]] const ListedParameter& operator[](std::size_t number) const { return parameters_[number]; }
  [[nodiscard]] std::optional<std::size_t> find(const at::Tensor& parameter) const;
  /// Which parameter it is, for comparison between ranks and for people.
  [[nodiscard]] std::string describe(std::size_t number) const;

  /// @throws Error naming the first parameter that was moved, resized or converted since, or that has a `.grad`.
  void check_unchanged() const;

 private:
  std::vector<ListedParameter> parameters_;
  std::vector<at::TensorOptions> options_;          // Device and type, as they were.
  std::vector<std::vector<std::int64_t>> strides_;  // As they were.
  std::unordered_map<const c10::TensorImpl*, std::size_t> numbers_;
};

}  // namespace spillway::optimizer

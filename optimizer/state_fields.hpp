#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <torch/optim/optimizer.h>

namespace spillway::optimizer {

/// A set of state tensors of one parameter: bit i stands for StateFields::names()[i].
using FieldMask = std::uint32_t;

/// What one kind of optimizer keeps for each parameter: the tensors that can be moved away between steps. What else a
/// state object holds (a step count) stays in it. Stateless and thread-safe. Whoever wraps an optimizer of their own
/// derives from this and hands it over in OptimizerConfig::state_fields.
class StateFields {
 public:
  StateFields() = default;
  StateFields(const StateFields&) = delete;
  StateFields& operator=(const StateFields&) = delete;
  virtual ~StateFields() = default;

  /// The optimizer's name for messages: "AdamW".
  [[nodiscard]] virtual std::string_view optimizer() const noexcept = 0;
  /// Names of the tensors, as LibTorch has them. Each is shaped like its parameter and of its type.
  [[nodiscard]] virtual std::span<const std::string_view> names() const noexcept = 0;
  /// The tensors that a step with these options reads or writes.
  [[nodiscard]] virtual FieldMask needed(const torch::optim::OptimizerOptions& options) const = 0;
  /// A state before the first update whose tensors, undefined here, are zeros; null where the first step makes the
  /// tensors from the gradient.
  [[nodiscard]] virtual std::unique_ptr<torch::optim::OptimizerParamState> make_zero_state() const = 0;
  /// State that the optimizer's constructor makes for each parameter, before any step; null where a step makes it.
  /// Asked for parameters that come later, in a group of their own.
  [[nodiscard]] virtual std::unique_ptr<torch::optim::OptimizerParamState> make_constructed_state(
      const at::Tensor& parameter, const torch::optim::OptimizerOptions& options) const;
  /// True for an optimizer that counts calls of its own step() or looks at several parameters at once: all of them are
  /// then updated together, with all of their state in memory.
  [[nodiscard]] virtual bool whole_model() const noexcept { return false; }
  /// True where each element of a parameter is updated from that element of gradient and state alone, so that ranks may
  /// own parts of a tensor. Where it is not declared, ranks own whole tensors.
  [[nodiscard]] virtual bool element_wise() const noexcept { return false; }
  /// The place of tensor `field` in a state object of this kind.
  [[nodiscard]] virtual at::Tensor& tensor(torch::optim::OptimizerParamState& state, std::size_t field) const = 0;
};

/// The description for this very class of optimizer, null if there is none: a subclass may keep more, so it is not
/// taken for its base. The result lives for ever.
[[nodiscard]] const StateFields* find_state_fields(const torch::optim::Optimizer& optimizer) noexcept;

/// For an optimizer whose state stays where it puts it: no tensor is moved. The result lives for ever.
[[nodiscard]] const StateFields& unmoved_fields() noexcept;

/// "Adam, AdamW, …": for messages.
[[nodiscard]] std::string known_optimizers();

}  // namespace spillway::optimizer

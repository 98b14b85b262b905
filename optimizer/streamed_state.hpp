#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>

#include <spillway/offload/block_store.hpp>
#include <spillway/offload/budget.hpp>
#include <spillway/offload/tiers.hpp>
#include <spillway/optimizer/state_fields.hpp>
#include <spillway/optimizer/state_units.hpp>

namespace spillway::optimizer {

/// Bytes that a step moves from and to disk, padding included.
struct StepBytes {
  std::uint64_t read = 0;
  std::uint64_t written = 0;
  friend bool operator==(const StepBytes&, const StepBytes&) = default;
};

/// The state of a wrapped optimizer in blocks, and its step over them, sub-group by sub-group. The wrapped optimizer's
/// state objects stay in its map, with undefined tensors between steps. One caller at a time.
class StreamedState {
 public:
  using ParamGroups = StateUnits::ParamGroups;
  using Indices = std::vector<std::size_t>;  ///< Of units, in the order of a pass.

  /// `optimizer` and `fields` outlive this.
  StreamedState(torch::optim::Optimizer& optimizer, const StateFields& fields, std::shared_ptr<offload::Tiers> tiers,
                StreamedStateOptions options);

  /// Follows the parameter lists of `groups`; state that new parameters have already moves into their blocks. Cheap
  /// where nothing changed. @throws ConfigError, BudgetExceeded, OutOfSpace, then nothing changed; IoError.
  void follow(const ParamGroups& groups);
  /// @see StateUnits::check.
  void check(const ParamGroups& groups) const { units_.check(groups); }
  /// Starts to read what the next step needs first, supposing that the same parameters as in the last step will have
  /// gradients. Returns without waiting. Does nothing if it was called since the last step.
  void prefetch();
  /// One update of every parameter that has a gradient. The wrapped optimizer's groups have the options to use; their
  /// parameter lists are changed. @throws what I/O or LibTorch throws: weights and state may be part-updated then.
  void step();
  /// Blocks until every write has ended. @throws IoError.
  void flush();

  /// Fills the wrapped optimizer's state objects with copies of everything, for saving.
  /// @throws BudgetExceeded, IoError, Corruption: nothing is filled then.
  void copy_out();
  /// Undoes copy_out().
  void clear() noexcept;
  /// Moves tensors of state objects that were filled from outside (loading) into the blocks.
  void take_over() { take_over(0); }

  /// @see Optimizer::next_step_bytes, Optimizer::steady_step_bytes.
  [[nodiscard]] StepBytes next_step_bytes() const;
  [[nodiscard]] StepBytes steady_step_bytes() const;
  [[nodiscard]] const StatePlacement& placement() const noexcept { return units_.placement(); }

  /// A step whose caller makes the gradients: the units of parts, in whose order they are stepped, that have parameters
  /// with one. `begin_step` announces all of them; `step_unit` is called for each in this order, with `.grad` set.
  [[nodiscard]] Indices units_with_gradient() const { return with_gradient(); }
  void begin_step(const Indices& indices);
  void step_unit(std::size_t index) { step(units_.all()[index]); }
  [[nodiscard]] const StateUnit& unit(std::size_t index) const { return units_.all()[index]; }

  /// Forgets the state of parameters that this rank does not own.
  void drop_foreign(const ParamGroups& groups);

 private:
  void construct_states(std::size_t first_unit, const ParamGroups& groups);
  void take_over(std::size_t first_unit);
  [[nodiscard]] Indices with_gradient() const;
  [[nodiscard]] Indices with_state(std::size_t first_unit) const;
  void announce(const Indices& indices, offload::Access access);
  void step(StateUnit& unit);

  torch::optim::Optimizer& optimizer_;
  const StateFields& fields_;
  std::shared_ptr<offload::Tiers> tiers_;  // Shared with other clients of the same memory and disk.
  StateUnits units_;
  Indices usual_;                // Of the last step: the guess for the next one.
  Indices announced_;            // Of the pass that prefetch() began.
  offload::Reservation copies_;  // Memory of what copy_out() made.
};

}  // namespace spillway::optimizer

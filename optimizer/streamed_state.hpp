#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>

#include <spillway/offload/block_store.hpp>
#include <spillway/offload/budget.hpp>
#include <spillway/offload/tiers.hpp>
#include <spillway/optimizer/bound_state.hpp>
#include <spillway/optimizer/fused_step.hpp>
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

  /// `optimizer` and `fields` outlive this. Where options.form asks for kernels, the optimizer is one that has some.
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
  /// Has the next prefetch() begin anew: no step comes to what the last one reads.
  void give_up_prefetch() noexcept { announced_.clear(); }
  /// @see Optimizer::observe_masters.
  using MasterObserver = std::function<void(const at::Tensor& parameter, const at::Tensor& master)>;
  void observe_masters(MasterObserver observer) { observer_ = std::move(observer); }
  /// One update of every parameter that has a gradient, scaled in the same pass; the gradients stay as they are. The
  /// wrapped optimizer's groups have the options to use; their parameter lists are changed.
  /// @throws what I/O or LibTorch throws: weights and state may be part-updated then.
  void step(const GradientScale& scale = {});
  /// Blocks until every write has ended. @throws IoError.
  void flush();

  /// What kernels keep that LibTorch's archives have no place for, by parameter; undefined where there is none.
  struct Extra {
    at::Tensor master;  ///< The float32 weight, of the parameter's size.
    at::Tensor codes;   ///< Of state in 8 bits: @see copy_of_codes.
  };
  using Extras = std::unordered_map<const c10::TensorImpl*, Extra>;

  /// Fills the wrapped optimizer's state objects with copies of everything, for saving.
  /// @throws BudgetExceeded, IoError, Corruption: nothing is filled then.
  Extras copy_out();
  /// Undoes copy_out().
  void clear() noexcept;
  /// Moves tensors of state objects that were filled from outside (loading) into the blocks, and `extras` where slots
  /// have room for them. Other masters stay what they are.
  void take_over(const Extras& extras) { take_over(0, extras); }

  /// @see Optimizer::visit_state; with the slot instead of a name.
  using StateVisitor = std::function<void(const ParameterSlot& slot, const StoredTensor& tensor)>;
  void visit(const StateVisitor& visitor);
  /// The same without values, and without reading anything: dtype and sizes of tensors that must not be looked into.
  void list(const StateVisitor& visitor) const;
  /// Has `fill` write over each tensor that visit() would show, and keeps what it wrote.
  void rewrite(const StateVisitor& fill);
  /// What this rank owns, in the order of visit().
  void for_each_slot(const std::function<void(const ParameterSlot&)>& work) const;

  /// @see Optimizer::next_step_bytes, Optimizer::steady_step_bytes.
  [[nodiscard]] StepBytes next_step_bytes() const;
  [[nodiscard]] StepBytes steady_step_bytes() const;
  /// @see Optimizer::read_ahead_bytes.
  [[nodiscard]] std::uint64_t read_ahead_bytes() const { return units_.read_ahead_bytes(); }
  [[nodiscard]] const StatePlacement& placement() const noexcept { return units_.placement(); }
  /// Who updates how many parameters, and why LibTorch does where kernels were asked for: a line for the log.
  [[nodiscard]] std::string describe_update() const;

  /// A step whose caller has the gradients: the units of parts, in whose order they are stepped, that have parameters
  /// with one. `begin_step` announces all of them; `step_unit` is called for each in this order.
  [[nodiscard]] Indices units_with_gradient() const { return with_gradient(); }
  void begin_step(const Indices& indices);
  /// @param gradients  by slot, undefined where there is none: for slots that kernels update as FusedStep::run takes
  /// them, and scaled by it; for others as `.grad` is to be.
  void step_unit(std::size_t index, std::span<const at::Tensor> gradients, const GradientScale& scale);
  /// What state objects hold, moved or not.
  [[nodiscard]] const StateFields& fields() const noexcept { return all_fields_; }
  [[nodiscard]] const StateUnit& unit(std::size_t index) const { return units_.all()[index]; }

  /// Forgets the state of parameters that this rank does not own.
  void drop_foreign(const ParamGroups& groups);
  /// The state of a piece stands under the piece in the wrapped optimizer's map, where archives do not find it: moves
  /// it to the parameter, or back.
  void move_states(bool to_parameters) noexcept;
  /// Has the pieces take their part of state that was loaded under their parameters.
  void split_states() { split_states(0); }
  /// Forgets what stands under parameters of which this rank owns a piece.
  void drop_states_of_wholes() noexcept;

 private:
  void construct_states(std::size_t first_unit, const ParamGroups& groups);
  void take_over(std::size_t first_unit, const Extras& extras);
  [[nodiscard]] Indices with_gradient() const;
  /// Of units from the first on where `wanted` says so of some slot with something in the block.
  [[nodiscard]] Indices with_slot(std::size_t first_unit,
                                  const std::function<bool(const ParameterSlot&)>& wanted) const;
  [[nodiscard]] bool has_state(const ParameterSlot& slot) const;
  /// Whether the state of a piece stands under its parameter, where loading and LibTorch's constructors put it.
  [[nodiscard]] bool has_state_of_whole(const ParameterSlot& slot) const;
  /// Has the pieces of units from the first on take their part of state that stands under their parameters.
  void split_states(std::size_t first_unit);
  [[nodiscard]] Extra extra_of(const Extras& extras, const ParameterSlot& slot) const;
  /// Of units whose block holds something.
  [[nodiscard]] Indices with_content() const;
  void for_each_stored(const StateUnit& unit, std::span<std::byte> block, const StateVisitor& visitor) const;
  void announce(const Indices& indices, offload::Access access);
  void step(StateUnit& unit, std::span<const at::Tensor> gradients, const GradientScale& kernel_scale,
            const GradientScale& libtorch_scale);
  void show_masters(const StateUnit& unit, const std::vector<Member>& members, std::span<std::byte> block) const;
  void step_by_libtorch(StateUnit& unit, const std::vector<Member>& members, std::span<std::byte> block,
                        const GradientScale& scale);

  torch::optim::Optimizer& optimizer_;
  const StateFields& fields_;              // What is moved.
  const StateFields& all_fields_;          // What there is.
  std::shared_ptr<offload::Tiers> tiers_;  // Shared with other clients of the same memory and disk.
  StateUnits units_;
  std::unique_ptr<FusedStep> fused_;  // Null without kernels.
  Indices usual_;                     // Of the last step: the guess for the next one.
  Indices announced_;                 // Of the pass that prefetch() began.
  MasterObserver observer_;           // Null where nobody looks.
  offload::Reservation copies_;       // Memory of what copy_out() made.
};

}  // namespace spillway::optimizer

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/optim/optimizer.h>

#include <spillway/offload/block_store.hpp>
#include <spillway/offload/tiers.hpp>
#include <spillway/optimizer/state_fields.hpp>
#include <spillway/optimizer/state_layout.hpp>

namespace spillway::optimizer {

struct StreamedStateOptions {
  bool disk_allowed = false;          ///< Whether what does not fit in host memory goes to disk.
  std::uint64_t host_bytes = 0;       ///< Of all stores together, rings included; kUnlimitedBytes: what the tiers have.
  std::uint64_t sub_group_numel = 0;  ///< 0: a size from the budget.
  unsigned ring_slots = 4;
};

/// Bytes that a step moves from and to disk, padding included.
struct StepBytes {
  std::uint64_t read = 0;
  std::uint64_t written = 0;
  friend bool operator==(const StepBytes&, const StepBytes&) = default;
};

/// Where the state lives.
struct StatePlacement {
  std::size_t sub_groups = 0;
  std::uint64_t state_bytes = 0;     ///< Of the tensors alone.
  std::uint64_t resident_bytes = 0;  ///< Host memory of the blocks that stay.
  std::uint64_t ring_bytes = 0;      ///< Host memory of the staging buffers.
  std::uint64_t disk_bytes = 0;
};

/// The state of a wrapped optimizer in blocks, and its step over them, sub-group by sub-group. The wrapped optimizer's
/// state objects stay in its map, with undefined tensors between steps. One caller at a time.
class StreamedState {
 public:
  using ParamGroups = std::vector<torch::optim::OptimizerParamGroup>;

  /// `optimizer` and `fields` outlive this.
  StreamedState(torch::optim::Optimizer& optimizer, const StateFields& fields, std::shared_ptr<offload::Tiers> tiers,
                StreamedStateOptions options);
  ~StreamedState();
  StreamedState(const StreamedState&) = delete;
  StreamedState& operator=(const StreamedState&) = delete;

  /// Follows the parameter lists of `groups`: makes blocks for parameters that are new and need state (they want a
  /// gradient, have one, or have been stepped before, then their state moves into the blocks). Cheap when nothing
  /// changed. @throws ConfigError, BudgetExceeded, OutOfSpace, then nothing changed; IoError.
  void follow(const ParamGroups& groups);
  /// Checks what can be checked before anything is changed: dense gradients, room for the tensors that the options
  /// ask for. @throws ConfigError, Error.
  void check(const ParamGroups& groups) const;
  /// Starts to read what the next step needs first. Returns without waiting; once per step, then nothing.
  void prefetch();
  /// One update of every parameter that has a gradient. The wrapped optimizer's groups have the options to use; their
  /// parameter lists are changed. @throws what I/O or LibTorch throws: weights and state may be part-updated then.
  void step();
  void flush();

  /// Fills the wrapped optimizer's state objects with copies of everything, for saving.
  void copy_out();
  /// Undoes copy_out().
  void clear() noexcept;
  /// Takes over state objects that were filled anew (loading).
  void take_over();

  [[nodiscard]] StepBytes next_step_bytes() const;
  [[nodiscard]] StepBytes steady_step_bytes() const;
  [[nodiscard]] StatePlacement placement() const;

 private:
  struct Unit;
  struct NewParameters;

  [[nodiscard]] bool changed(const ParamGroups& groups) const;
  [[nodiscard]] NewParameters find_new(const ParamGroups& groups) const;
  [[nodiscard]] std::uint64_t host_share(const std::vector<std::uint64_t>& block_bytes) const;
  void add_units(std::vector<ParameterSlot> slots);
  void list_members(const ParamGroups& groups);
  void take_over(std::size_t first_unit);
  std::vector<std::size_t> units_with_gradient() const;
  void announce(const std::vector<std::size_t>& units, offload::Access access);
  void step_unit(Unit& unit);

  torch::optim::Optimizer& optimizer_;
  const StateFields& fields_;
  std::shared_ptr<offload::Tiers> tiers_;
  StreamedStateOptions options_;

  std::vector<std::unique_ptr<offload::BlockStore>> stores_;  // One per batch of parameters that came together.
  std::vector<Unit> units_;
  struct Place {
    std::size_t unit;
    std::size_t slot;
  };
  std::unordered_map<const c10::TensorImpl*, Place> places_;
  std::vector<std::vector<const c10::TensorImpl*>> followed_;  // The lists that the members were made from.
  std::vector<at::Tensor> unplaced_;                           // Frozen: no state until they get a gradient.
  std::vector<std::size_t> usual_;                             // Units of the last step: the guess for the next one.
  std::vector<std::size_t> announced_;                         // Units of the pass that prefetch() began.
  StatePlacement placement_;
  offload::Reservation copies_;  // Memory of what copy_out() made.
};

}  // namespace spillway::optimizer

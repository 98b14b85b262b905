#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <torch/optim/optimizer.h>

#include <spillway/offload/block_store.hpp>
#include <spillway/offload/parallel.hpp>
#include <spillway/offload/tiers.hpp>
#include <spillway/optimizer/state_fields.hpp>
#include <spillway/optimizer/state_layout.hpp>

namespace spillway::optimizer {

/// What a rank owns of a parameter.
struct OwnedShard {
  std::size_t part = 0;  ///< In which part of the model it lies.
  /// A range of elements, where it is not all of them. @see ShardPiece.
  std::optional<offload::Range> piece;
};

struct StreamedStateOptions {
  bool disk_allowed = false;          ///< Whether what does not fit in host memory goes to disk.
  std::uint64_t host_bytes = 0;       ///< Rings included; kUnlimitedBytes: what the tiers have.
  std::uint64_t sub_group_numel = 0;  ///< 0: a size from the budget.
  unsigned ring_slots = 4;
  SlotForm form{};  ///< Of the parameters' slots.
  /// What state objects hold, where that stays in them (unmoved_fields()); outlives the state. Null: what is moved.
  const StateFields* kept_fields = nullptr;
  /// Where gradients are taken: what this rank owns of a parameter, nothing where it has no state of it. Parts are
  /// visited in their order. Null: all are owned, in one part.
  std::function<std::optional<OwnedShard>(const at::Tensor& parameter)> shard_of;
  /// Whether a parameter has a gradient. Null: whether its `.grad` is defined.
  std::function<bool(const at::Tensor& parameter)> has_gradient;
};

/// Where the state lives.
struct StatePlacement {
  std::size_t sub_groups = 0;
  std::uint64_t state_bytes = 0;     ///< Of the tensors alone, and of masters.
  std::uint64_t resident_bytes = 0;  ///< Host memory of the blocks that stay.
  std::uint64_t ring_bytes = 0;      ///< Host memory of the staging buffers.
  std::uint64_t disk_bytes = 0;
  std::size_t fused_parameters = 0;  ///< Those that kernels update; LibTorch's own step updates the others.
  std::size_t other_parameters = 0;
};

/// A sub-group and the place of its state.
struct StateUnit {
  SubGroup group;
  offload::BlockStore* store = nullptr;
  std::optional<offload::BlockId> block;  ///< None where no parameter has state to move.
  bool on_disk = false;
  bool written = false;  ///< Whether a step would have to read it from disk.
};

/// The sub-groups of an optimizer's parameters and the stores that hold their blocks. Follows the groups' parameter
/// lists, which a user may change at any time. One caller at a time.
class StateUnits {
 public:
  using ParamGroups = std::vector<torch::optim::OptimizerParamGroup>;
  using States = ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;

  /// `fields` outlives this.
  StateUnits(const StateFields& fields, std::shared_ptr<offload::Tiers> tiers, StreamedStateOptions options);

  /// Makes units for parameters of `groups` that are new and need state: they want a gradient, have one, or have a
  /// state object already. Lists the members of all units anew. Cheap where nothing changed.
  /// @throws ConfigError, BudgetExceeded, OutOfSpace, then nothing changed.
  void follow(const ParamGroups& groups, const States& states);
  /// Has pieces lie where their parameters do now: set_data() may have given these other memory.
  void follow_memory();
  /// Checks what can be checked before a step changes anything: dense gradients, room for the tensors that the options
  /// ask for, and what kernels rely on. @throws ConfigError, Error.
  void check(const ParamGroups& groups) const;

  [[nodiscard]] std::vector<StateUnit>& all() noexcept { return units_; }
  [[nodiscard]] const std::vector<StateUnit>& all() const noexcept { return units_; }
  /// Each holds the blocks of parameters that came together.
  [[nodiscard]] const std::vector<std::unique_ptr<offload::BlockStore>>& stores() const noexcept { return stores_; }
  [[nodiscard]] const StatePlacement& placement() const noexcept { return placement_; }
  /// Of the blocks that fill the staging buffers as a pass over all units is announced.
  [[nodiscard]] std::uint64_t read_ahead_bytes() const;
  [[nodiscard]] bool has_gradient(const at::Tensor& parameter) const;
  /// Whether this rank has the state of the parameter, if it has any.
  [[nodiscard]] bool owns(const at::Tensor& parameter) const;

 private:
  struct NewParameters {
    std::vector<ParameterSlot> slots;
    std::vector<at::Tensor> frozen;
  };
  struct Place {
    std::size_t unit = 0;
    std::size_t slot = 0;
  };

  [[nodiscard]] bool wants_state(const at::Tensor& parameter) const;
  [[nodiscard]] bool changed(const ParamGroups& groups) const;
  [[nodiscard]] NewParameters find_new(const ParamGroups& groups, const States& states) const;
  [[nodiscard]] ParameterSlot slot_for(const at::Tensor& parameter, std::string name, FieldMask needed,
                                       const States& states) const;
  [[nodiscard]] SubGroupLimits limits() const;
  [[nodiscard]] std::uint64_t host_share(const std::vector<std::uint64_t>& block_bytes) const;
  void add(std::vector<ParameterSlot> slots);
  void list_members(const ParamGroups& groups);
  void check_room(const ParameterSlot& slot, FieldMask needed, std::size_t group) const;

  const StateFields& fields_;
  std::shared_ptr<offload::Tiers> tiers_;  // Shared with other clients of the same memory and disk.
  StreamedStateOptions options_;
  std::vector<std::unique_ptr<offload::BlockStore>> stores_;
  std::vector<StateUnit> units_;
  std::unordered_map<const c10::TensorImpl*, Place> places_;
  std::vector<std::vector<const c10::TensorImpl*>> followed_;  // The lists that the members were made from.
  std::vector<at::Tensor> frozen_;                             // No state until they get a gradient.
  StatePlacement placement_;
};

}  // namespace spillway::optimizer

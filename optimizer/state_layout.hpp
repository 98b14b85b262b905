#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/optimizer/kernel_types.hpp>
#include <spillway/optimizer/state_fields.hpp>
#include <spillway/optimizer/state_format.hpp>

namespace spillway::optimizer {

/// Where one state tensor of a parameter lies in its sub-group's block.
struct FieldSlot {
  std::size_t field = 0;              ///< Index into StateFields::names().
  std::uint64_t offset = 0;           ///< In the block; a multiple of 64.
  std::uint64_t bytes = 0;            ///< > 0.
  std::vector<std::int64_t> strides;  ///< Those of LibTorch's own tensor: bits depend on the order of elements.
  /// Of the elements in the block; kByte: codes of StateFormat::kBlockwise8, whose scales follow at scales_offset.
  at::ScalarType type = at::kFloat;
  std::uint64_t scales_offset = 0;  ///< Behind `offset`.
};

/// What slots are made for. @see kernel_refusal for which parameters kernels update.
struct SlotForm {
  bool fused = false;  ///< Kernels update what they can; the rest is for them.
  StateFormat state = StateFormat::kFloat32;
  MasterFormat masters = MasterFormat::kNone;
};

/// A parameter, or what this rank owns of one, and its state. Tensors of no elements have no fields here: they stay
/// with LibTorch.
struct ParameterSlot {
  at::Tensor parameter;     ///< What is updated: @see piece_view where it is a piece.
  at::Tensor whole;         ///< The parameter that it is a piece of; undefined where it is a parameter itself.
  std::uint64_t begin = 0;  ///< Of the piece, in the order of the parameter's memory.
  std::string name;         ///< "parameter 3 of group 0": for messages.
  FieldMask planned = 0;    ///< Tensors that there is room for.
  std::vector<FieldSlot> fields;
  /// Kernels update the parameter. Its state is in the order of its own elements then, and of a type of its own.
  bool fused = false;
  KernelTypes types;                  ///< Of a fused parameter, with a gradient of its own type.
  std::optional<FieldSlot> master;    ///< What lies beside the weight: float32, or remainders as kShort.
  std::vector<std::int64_t> sizes;    ///< Of a fused parameter as the slot was made: what its state fits.
  std::vector<std::int64_t> strides;  ///< The same.
  at::ScalarType type = at::kFloat;   ///< The same.
  std::size_t part = 0;               ///< Parameters of different parts share no sub-group.

  /// The parameter that groups list.
  [[nodiscard]] const at::Tensor& listed() const noexcept { return whole.defined() ? whole : parameter; }
  /// Behind the last element of the piece.
  [[nodiscard]] std::uint64_t end() const { return begin + static_cast<std::uint64_t>(parameter.numel()); }
};

/// One use of a parameter by a group. A tied parameter has several.
struct Member {
  std::size_t group = 0;
  std::size_t slot = 0;
};

/// Parameters that are updated together: their state is one block. It may span parameter groups.
struct SubGroup {
  std::vector<ParameterSlot> slots;
  std::vector<Member> members;  ///< In the order of groups, and of parameters inside a group.
  std::uint64_t bytes = 0;      ///< Of the block; 0 where no parameter has state to move.
  std::string label;            ///< "sub-group 3": for messages.
};

/// Limits of one sub-group. A single parameter may exceed them; whole tensors only.
struct SubGroupLimits {
  std::uint64_t numel = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t bytes = std::numeric_limits<std::uint64_t>::max();
};

/// A slot for `parameter` with room for the `planned` tensors, shaped as LibTorch makes them (zeros like the
/// parameter, strides kept where it is dense). `existing`, which may be null, gives those that already exist their
/// present strides. Offsets are set by pack().
/// @throws ConfigError for a sparse parameter, a 16-bit one that is to have a master and that kernels can't update, or
/// where an existing tensor is not of the parameter's size and type (or float32, for a fused one).
[[nodiscard]] ParameterSlot make_slot(const at::Tensor& parameter, std::string name, FieldMask planned,
                                      const StateFields& fields, torch::optim::OptimizerParamState* existing,
                                      const SlotForm& form = {});

/// Whether a state tensor that LibTorch made or loaded may come in this type: the parameter's own, or float32 for a
/// fused parameter.
[[nodiscard]] bool may_have_type(const ParameterSlot& slot, at::ScalarType type) noexcept;

/// Bytes of a field of StateFormat::kBlockwise8, and where its scales begin.
[[nodiscard]] std::uint64_t coded_field_bytes(std::uint64_t numel) noexcept;
[[nodiscard]] std::uint64_t coded_scales_offset(std::uint64_t numel) noexcept;

/// Bytes of a slot in its block, without padding.
[[nodiscard]] std::uint64_t slot_bytes(const ParameterSlot& slot) noexcept;
/// Bytes of the tensors that it becomes in an archive.
[[nodiscard]] std::uint64_t archived_bytes(const ParameterSlot& slot) noexcept;

/// Cuts slots, in their order, into sub-groups within the limits. A parameter without state counts as nothing.
/// `first_number` is the number of the first one in its label.
[[nodiscard]] std::vector<SubGroup> pack(std::vector<ParameterSlot> slots, const SubGroupLimits& limits,
                                         std::size_t first_number);

/// A block size for a budget: a ring of `ring_slots` of them takes at most a quarter of it, and large enough for the
/// disk to run at its full rate where the budget allows.
[[nodiscard]] std::uint64_t default_sub_group_bytes(std::uint64_t host_bytes, unsigned ring_slots) noexcept;

}  // namespace spillway::optimizer

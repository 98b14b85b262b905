#include <spillway/optimizer/state_layout.hpp>

#include <algorithm>
#include <utility>

#include <ATen/ops/empty_like.h>

#include <spillway/offload/error.hpp>
#include <spillway/offload/tier.hpp>
#include <spillway/optimizer/kernel_tensor.hpp>
#include <spillway/optimizer/state_codec.hpp>

namespace spillway::optimizer {
namespace {

constexpr std::uint64_t kAlignment = 64;  // Of a state tensor in its block: a cache line, and what vector code likes.
constexpr std::uint64_t kPreferredBytes = 8U << 20;  // With 1 MiB transfers a few blocks keep a disk's queue full.

std::uint64_t align(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Fields that an update walks side by side never lie a multiple of 256 MiB apart: some processors (AMD's Zen) tell
// lines of their first cache by 28 bits of the address, and would keep one of them only. That halves the speed of an
// update.
constexpr std::uint64_t kAliasBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kAliasGap = std::uint64_t{68} << 10;  // Farther than one field's lines are read ahead.

std::uint64_t room_of(const FieldSlot& field) {
  const std::uint64_t bytes = align(field.bytes);
  return bytes != 0 && bytes % kAliasBytes == 0 ? bytes + kAliasGap : bytes;
}

void check_existing(const at::Tensor& tensor, const ParameterSlot& slot, std::string_view field) {
  const at::Tensor& parameter = slot.parameter;
  if (tensor.sizes() != parameter.sizes() || !may_have_type(slot, tensor.scalar_type()) ||
      tensor.layout() != at::kStrided) {
    throw ConfigError("state tensor " + std::string(field) + " of " + slot.name +
                      " is not of the parameter's size, type and layout; wrap an optimizer that LibTorch made");
  }
}

// What kernels are to know of a parameter that they update.
void make_fused(ParameterSlot& slot, const SlotForm& form) {
  const ElementType type = *kernel_element_type(slot.parameter.scalar_type());
  slot.fused = true;
  slot.sizes = slot.parameter.sizes().vec();
  slot.strides = slot.parameter.strides().vec();
  slot.type = slot.parameter.scalar_type();
  slot.types.gradient = type;
  slot.types.weight = weight_form(type, form.masters);
  slot.types.state = form.state == StateFormat::kBFloat16 ? ElementType::kBFloat16 : ElementType::kFloat32;
  if (const std::uint64_t bytes = master_bytes_of(slot.types.weight); bytes > 0) {
    slot.master = FieldSlot{.bytes = bytes * static_cast<std::uint64_t>(slot.parameter.numel()),
                            .strides = slot.strides,
                            .type = bytes == 4 ? at::kFloat : at::kShort};
  }
}

// A field of a parameter that kernels update.
FieldSlot fused_field(const ParameterSlot& slot, std::size_t field, StateFormat format) {
  const auto numel = static_cast<std::uint64_t>(slot.parameter.numel());
  FieldSlot result{.field = field, .strides = slot.strides};
  switch (format) {
    case StateFormat::kFloat32:
      result.bytes = 4 * numel;
      break;
    case StateFormat::kBFloat16:
      result.type = at::kBFloat16;
      result.bytes = 2 * numel;
      break;
    case StateFormat::kBlockwise8:
      result.type = at::kByte;
      result.scales_offset = coded_scales_offset(numel);
      result.bytes = coded_field_bytes(numel);
  }
  return result;
}

}  // namespace

bool may_have_type(const ParameterSlot& slot, at::ScalarType type) noexcept {
  return type == slot.parameter.scalar_type() || (slot.fused && type == at::kFloat);
}

ParameterSlot make_slot(const at::Tensor& parameter, std::string name, FieldMask planned, const StateFields& fields,
                        torch::optim::OptimizerParamState* existing, const SlotForm& form) {
  ParameterSlot slot;
  slot.parameter = parameter;
  slot.name = std::move(name);
  slot.planned = planned;
  if (parameter.layout() != at::kStrided) {
    throw ConfigError(slot.name + " is sparse; " + std::string(fields.optimizer()) + " needs dense parameters");
  }
  const std::string refusal = kernel_refusal(parameter);
  if (form.fused && refusal.empty()) {
    make_fused(slot, form);
  } else if (form.masters != MasterFormat::kNone && at::elementSize(parameter.scalar_type()) == 2 &&
             parameter.numel() > 0) {
    throw ConfigError(slot.name + " can't have a master: it " + refusal);
  }
  // Without memory: only the strides that zeros_like would choose are of interest.
  const std::vector<std::int64_t> like =
      at::empty_like(parameter, at::device(at::kMeta), at::MemoryFormat::Preserve).strides().vec();
  for (std::size_t field = 0; field < fields.names().size(); ++field) {
    const at::Tensor present = existing == nullptr ? at::Tensor() : fields.tensor(*existing, field);
    if (present.defined()) {
      check_existing(present, slot, fields.names()[field]);
      slot.planned |= FieldMask{1} << field;
    } else if (existing != nullptr && (planned >> field & 1U) != 0) {
      throw ConfigError("the state of " + slot.name + " has no " + std::string(fields.names()[field]) +
                        ", which its options ask for: set them before the first step");
    }
    if ((slot.planned >> field & 1U) != 0 && parameter.numel() > 0) {
      const bool keeps_strides = present.defined() && present.is_non_overlapping_and_dense();
      slot.fields.push_back(slot.fused ? fused_field(slot, field, form.state)
                                       : FieldSlot{.field = field,
                                                   .bytes = parameter.nbytes(),
                                                   .strides = keeps_strides ? present.strides().vec() : like,
                                                   .type = parameter.scalar_type()});
    }
  }
  return slot;
}

std::uint64_t coded_scales_offset(std::uint64_t numel) noexcept { return align(numel); }

std::uint64_t coded_field_bytes(std::uint64_t numel) noexcept {
  return coded_scales_offset(numel) + sizeof(float) * dynamic_blocks(numel);
}

std::uint64_t slot_bytes(const ParameterSlot& slot) noexcept {
  std::uint64_t bytes = slot.master ? slot.master->bytes : 0;
  for (const FieldSlot& field : slot.fields) {
    bytes += field.bytes;
  }
  return bytes;
}

std::uint64_t archived_bytes(const ParameterSlot& slot) noexcept {
  if (!slot.fused) {
    return slot_bytes(slot);
  }
  std::uint64_t floats = slot.master ? 1 : 0;
  std::uint64_t codes = 0;
  for (const FieldSlot& field : slot.fields) {
    ++floats;
    codes += field.type == at::kByte ? field.bytes : 0;
  }
  return floats * sizeof(float) * static_cast<std::uint64_t>(slot.parameter.numel()) + codes;
}

std::vector<SubGroup> pack(std::vector<ParameterSlot> slots, const SubGroupLimits& limits, std::size_t first_number) {
  std::vector<SubGroup> groups;
  std::uint64_t numel = 0;
  for (ParameterSlot& slot : slots) {
    std::uint64_t bytes = slot.master ? room_of(*slot.master) : 0;
    for (const FieldSlot& field : slot.fields) {
      bytes += room_of(field);
    }
    const std::uint64_t slot_numel = bytes == 0 ? 0 : static_cast<std::uint64_t>(slot.parameter.numel());
    const bool full = !groups.empty() && groups.back().bytes > 0 &&
                      (numel + slot_numel > limits.numel || groups.back().bytes + bytes > limits.bytes);
    const bool other_part = !groups.empty() && groups.back().slots.back().part != slot.part;
    if (groups.empty() || other_part || (full && bytes > 0)) {
      groups.push_back({{}, {}, 0, "sub-group " + std::to_string(first_number + groups.size())});
      numel = 0;
    }
    SubGroup& group = groups.back();
    const auto place = [&](FieldSlot& field) {
      field.offset = group.bytes;
      group.bytes += room_of(field);
    };
    std::for_each(slot.fields.begin(), slot.fields.end(), place);
    if (slot.master) {
      place(*slot.master);
    }
    numel += slot_numel;
    group.slots.push_back(std::move(slot));
  }
  return groups;
}

std::uint64_t default_sub_group_bytes(std::uint64_t host_bytes, unsigned ring_slots) noexcept {
  const std::uint64_t share = host_bytes / 4 / ring_slots / offload::kPageBytes * offload::kPageBytes;
  return std::clamp(share, offload::kPageBytes, kPreferredBytes);
}

}  // namespace spillway::optimizer

#include <spillway/optimizer/state_layout.hpp>

#include <algorithm>
#include <utility>

#include <ATen/ops/empty_like.h>

#include <spillway/offload/error.hpp>
#include <spillway/offload/tier.hpp>

namespace spillway::optimizer {
namespace {

constexpr std::uint64_t kAlignment = 64;  // Of a state tensor in its block: a cache line, and what vector code likes.
constexpr std::uint64_t kPreferredBytes = 8U << 20;  // With 1 MiB transfers a few blocks keep a disk's queue full.

std::uint64_t align(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void check_existing(const at::Tensor& tensor, const ParameterSlot& slot, std::string_view field) {
  const at::Tensor& parameter = slot.parameter;
  if (tensor.sizes() != parameter.sizes() || tensor.dtype() != parameter.dtype() || tensor.layout() != at::kStrided) {
    throw ConfigError("state tensor " + std::string(field) + " of " + slot.name +
                      " is not of the parameter's size, type and layout; wrap an optimizer that LibTorch made");
  }
}

}  // namespace

ParameterSlot make_slot(const at::Tensor& parameter, std::string name, FieldMask planned, const StateFields& fields,
                        torch::optim::OptimizerParamState* existing) {
  ParameterSlot slot{parameter, std::move(name), planned, {}, 0};
  if (parameter.layout() != at::kStrided) {
    throw ConfigError(slot.name + " is sparse; " + std::string(fields.optimizer()) + " needs dense parameters");
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
      const bool dense = present.defined() && present.is_non_overlapping_and_dense();
      slot.fields.push_back({field, 0, parameter.nbytes(), dense ? present.strides().vec() : like});
    }
  }
  return slot;
}

std::vector<SubGroup> pack(std::vector<ParameterSlot> slots, const SubGroupLimits& limits, std::size_t first_number) {
  std::vector<SubGroup> groups;
  std::uint64_t numel = 0;
  for (ParameterSlot& slot : slots) {
    std::uint64_t bytes = 0;
    for (const FieldSlot& field : slot.fields) {
      bytes += align(field.bytes);
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
    for (FieldSlot& field : slot.fields) {
      field.offset = group.bytes;
      group.bytes += align(field.bytes);
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

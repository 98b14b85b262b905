#include <spillway/optimizer/fused_step.hpp>

#include <algorithm>
#include <utility>

#include <spillway/offload/check.hpp>
#include <spillway/optimizer/kernel_tensor.hpp>

namespace spillway::optimizer {

void FusedStep::run(const SubGroup& group, std::span<const Member> members, std::span<const at::Tensor> gradients,
                    std::span<std::byte> block, const GradientScale& scale) {
  const bool one_by_one = share_memory(group, members);
  for (const Member& member : members) {
    const ParameterSlot& slot = group.slots[member.slot];
    pieces_.push_back(piece_of(slot, member.group, gradients[member.slot], block));
    if (!slot.parameter.is_inference()) {
      slot.parameter.unsafeGetTensorImpl()->bump_version();
    }
    if (one_by_one) {
      update(scale);
    }
  }
  update(scale);
}

void FusedStep::update(const GradientScale& scale) {
  update_.update(pieces_, scale, parallel_);
  pieces_.clear();
  copies_.clear();
}

// Two uses of a parameter, and parameters that are views of one another, are updated one after the other.
bool FusedStep::share_memory(const SubGroup& group, std::span<const Member> members) {
  extents_.clear();
  bool ascending = true;
  for (const Member& member : members) {
    const at::Tensor& parameter = group.slots[member.slot].parameter;
    const auto* begin = static_cast<const std::byte*>(parameter.const_data_ptr());
    ascending = ascending && (extents_.empty() || extents_.back().first + extents_.back().second <= begin);
    extents_.emplace_back(begin, parameter.nbytes());
  }
  if (ascending) {
    return false;
  }
  std::sort(extents_.begin(), extents_.end());
  return std::adjacent_find(extents_.begin(), extents_.end(), [](const auto& low, const auto& high) {
           return low.first + low.second > high.first;
         }) != extents_.end();
}

UpdatePiece FusedStep::piece_of(const ParameterSlot& slot, std::size_t group, const at::Tensor& given,
                                std::span<std::byte> block) {
  const at::Tensor& parameter = slot.parameter;
  const at::Tensor gradient = in_order_of(parameter, given);
  UpdatePiece piece{.numel = static_cast<std::uint64_t>(parameter.numel()),
                    .types = slot.types,
                    .gradient = gradient.const_data_ptr(),
                    .weight = parameter.mutable_data_ptr(),
                    .master = slot.master ? block.data() + slot.master->offset : nullptr,
                    .options = &optimizer_.param_groups()[group].options()};
  piece.types.gradient = *kernel_element_type(gradient.scalar_type());
  if (!gradient.is_same(given)) {
    copies_.push_back(gradient);
  }
  for (const FieldSlot& field : slot.fields) {
    SPILLWAY_CHECK(field.field < piece.state.size(), "kernels know three state tensors");
    std::byte* const memory = block.data() + field.offset;
    piece.state[field.field] = memory;
    if (field.type == at::kByte) {
      piece.scales[field.field] = reinterpret_cast<float*>(memory + field.scales_offset);
    }
  }
  piece.step = update_.count(optimizer_.state(), parameter, *piece.options);
  return piece;
}

}  // namespace spillway::optimizer

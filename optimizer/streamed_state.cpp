#include <spillway/optimizer/streamed_state.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

#include <spillway/offload/check.hpp>
#include <spillway/optimizer/bound_state.hpp>
#include <spillway/optimizer/fused_update.hpp>
#include <spillway/optimizer/kernel_tensor.hpp>
#include <spillway/optimizer/scaled_gradients.hpp>

namespace spillway::optimizer {
namespace {

using offload::Access;
using offload::BlockId;
using offload::Lease;

// Runs `work` on the unit's block in memory, which is written back afterwards, or left as it was on disk if that
// throws.
template <typename Work>
void update(StateUnit& unit, Work&& work) {
  Lease lease = unit.block ? unit.store->acquire(*unit.block, Access::kReadWrite) : Lease();
  try {
    work(lease.bytes());
  } catch (...) {
    lease.abandon();
    throw;
  }
  unit.written = unit.on_disk;
  lease.release();
}

}  // namespace

StreamedState::StreamedState(torch::optim::Optimizer& optimizer, const StateFields& fields,
                             std::shared_ptr<offload::Tiers> tiers, StreamedStateOptions options)
    : optimizer_(optimizer),
      fields_(fields),
      all_fields_(options.kept_fields != nullptr ? *options.kept_fields : fields),
      tiers_(std::move(tiers)),
      units_(fields, tiers_, options) {
  if (options.form.fused) {
    const FusedUpdate* const kernels = find_fused_update(optimizer);
    SPILLWAY_CHECK(kernels != nullptr, "kernels were asked for that there are not");
    fused_ = std::make_unique<FusedStep>(optimizer, *kernels);
  }
}

void StreamedState::follow(const ParamGroups& groups) {
  const std::size_t first_new = units_.all().size();
  units_.follow_memory();
  units_.follow(groups, optimizer_.state());
  construct_states(first_new, groups);
  take_over(first_new, {});
}

void StreamedState::construct_states(std::size_t first_unit, const ParamGroups& groups) {
  for (std::size_t u = first_unit; u < units_.all().size(); ++u) {
    const SubGroup& group = units_.all()[u].group;
    for (const Member& member : group.members) {
      const at::Tensor& parameter = group.slots[member.slot].parameter;
      void* const key = parameter.unsafeGetTensorImpl();
      if (optimizer_.state().count(key) != 0 || has_state_of_whole(group.slots[member.slot])) {
        continue;
      }
      if (auto state = fields_.make_constructed_state(parameter, groups[member.group].options())) {
        optimizer_.state()[key] = std::move(state);
      }
    }
  }
}

StreamedState::Indices StreamedState::with_gradient() const {
  Indices indices;
  for (std::size_t u = 0; u < units_.all().size(); ++u) {
    const SubGroup& group = units_.all()[u].group;
    if (std::any_of(group.members.begin(), group.members.end(),
                    [&](const Member& member) { return units_.has_gradient(group.slots[member.slot].listed()); })) {
      indices.push_back(u);
    }
  }
  return indices;
}

StreamedState::Indices StreamedState::with_slot(std::size_t first_unit,
                                                const std::function<bool(const ParameterSlot&)>& wanted) const {
  Indices indices;
  for (std::size_t u = first_unit; u < units_.all().size(); ++u) {
    const StateUnit& unit = units_.all()[u];
    if (unit.block && std::any_of(unit.group.slots.begin(), unit.group.slots.end(), wanted)) {
      indices.push_back(u);
    }
  }
  return indices;
}

bool StreamedState::has_state(const ParameterSlot& slot) const {
  return optimizer_.state().count(slot.parameter.unsafeGetTensorImpl()) != 0;
}

void StreamedState::announce(const Indices& indices, Access access) {
  for (const auto& store : units_.stores()) {
    std::vector<BlockId> order;
    for (const std::size_t u : indices) {
      if (units_.all()[u].store == store.get()) {
        order.push_back(*units_.all()[u].block);
      }
    }
    if (!order.empty()) {
      store->begin(order, access);
    }
  }
}

void StreamedState::prefetch() {
  if (!announced_.empty()) {
    return;
  }
  announced_ = usual_;
  if (announced_.empty()) {
    announced_.resize(units_.all().size());
    std::iota(announced_.begin(), announced_.end(), std::size_t{0});
  }
  announce(announced_, Access::kReadWrite);
}

void StreamedState::step(const GradientScale& scale) {
  const Indices indices = with_gradient();
  begin_step(indices);
  for (const std::size_t u : indices) {
    StateUnit& unit = units_.all()[u];
    std::vector<at::Tensor> gradients;
    for (const ParameterSlot& slot : unit.group.slots) {
      gradients.push_back(slot.parameter.grad());
    }
    step(unit, gradients, scale, scale);
  }
}

void StreamedState::step_unit(std::size_t index, std::span<const at::Tensor> gradients, const GradientScale& scale) {
  StateUnit& unit = units_.all()[index];
  // LibTorch's step finds them in `.grad`, for as long as it takes.
  struct Given {
    const std::vector<ParameterSlot>& slots;
    explicit Given(const std::vector<ParameterSlot>& to) : slots(to) {}
    Given(const Given&) = delete;
    Given& operator=(const Given&) = delete;
    ~Given() {
      for (const ParameterSlot& slot : slots) {
        slot.parameter.mutable_grad().reset();
      }
    }
  };
  const Given given(unit.group.slots);
  for (std::size_t s = 0; s < gradients.size(); ++s) {
    if (!unit.group.slots[s].fused) {
      unit.group.slots[s].parameter.mutable_grad() = gradients[s];
    }
  }
  step(unit, gradients, scale, {});
}

void StreamedState::begin_step(const Indices& indices) {
  if (indices.empty()) {
    return;
  }
  if (indices != std::exchange(announced_, {})) {
    announce(indices, Access::kReadWrite);
  }
  usual_ = indices;
}

void StreamedState::drop_foreign(const ParamGroups& groups) {
  for (const auto& group : groups) {
    for (const at::Tensor& parameter : group.params()) {
      if (!units_.owns(parameter)) {
        optimizer_.state().erase(parameter.unsafeGetTensorImpl());
      }
    }
  }
}

void StreamedState::step(StateUnit& unit, std::span<const at::Tensor> gradients, const GradientScale& kernel_scale,
                         const GradientScale& libtorch_scale) {
  std::vector<Member> by_kernels;
  std::vector<Member> by_libtorch;
  for (const Member& member : unit.group.members) {
    const ParameterSlot& slot = unit.group.slots[member.slot];
    const at::Tensor& gradient = gradients[member.slot];
    if (gradient.defined()) {
      (slot.fused && gradient.layout() == at::kStrided ? by_kernels : by_libtorch).push_back(member);
    }
  }
  update(unit, [&](std::span<std::byte> block) {
    if (!by_kernels.empty()) {
      fused_->run(unit.group, by_kernels, gradients, block, kernel_scale);
      show_masters(unit, by_kernels, block);
    }
    if (!by_libtorch.empty()) {
      step_by_libtorch(unit, by_libtorch, block, libtorch_scale);
    }
  });
}

void StreamedState::show_masters(const StateUnit& unit, const std::vector<Member>& members,
                                 std::span<std::byte> block) const {
  std::vector<bool> shown(unit.group.slots.size());
  for (const Member& member : members) {
    const ParameterSlot& slot = unit.group.slots[member.slot];
    if (observer_ && slot.master && !slot.whole.defined() && !shown[member.slot]) {
      observer_(slot.parameter, copy_of_master(slot, block));
      shown[member.slot] = true;
    }
  }
}

// LibTorch's own step, with nothing in its groups but these parameters.
void StreamedState::step_by_libtorch(StateUnit& unit, const std::vector<Member>& members, std::span<std::byte> block,
                                     const GradientScale& scale) {
  std::vector<torch::optim::OptimizerParamGroup>& groups = optimizer_.param_groups();
  for (auto& group : groups) {
    group.params().clear();
  }
  std::vector<bool> active(unit.group.slots.size());
  std::vector<at::Tensor> parameters;
  for (const Member& member : members) {
    parameters.push_back(unit.group.slots[member.slot].parameter);
    groups[member.group].params().push_back(parameters.back());
    active[member.slot] = true;
  }
  std::vector<ParameterSlot*> slots;
  for (std::size_t s = 0; s < active.size(); ++s) {
    if (active[s]) {
      slots.push_back(&unit.group.slots[s]);
    }
  }
  const ScaledGradients scaled(parameters, scale);
  BoundState bound(fields_, optimizer_, std::move(slots), block);
  optimizer_.step();
  bound.write_back();
}

void StreamedState::flush() {
  for (const auto& store : units_.stores()) {
    store->flush();
  }
}

void StreamedState::take_over(std::size_t first_unit, const Extras& extras) {
  split_states(first_unit);
  const Indices indices = with_slot(first_unit, [&](const ParameterSlot& slot) {
    return has_state(slot) || extras.count(slot.listed().unsafeGetTensorImpl()) != 0;
  });
  if (indices.empty()) {
    return;
  }
  announced_.clear();
  announce(indices, Access::kReadWrite);
  for (const std::size_t u : indices) {
    StateUnit& unit = units_.all()[u];
    update(unit, [&](std::span<std::byte> block) {
      move_into_block(fields_, optimizer_, unit.group.slots, block);
      for (const ParameterSlot& slot : unit.group.slots) {
        const Extra extra = extra_of(extras, slot);
        if (slot.master && extra.master.defined()) {
          move_master_into_block(slot, extra.master, block);
        }
        if (extra.codes.defined()) {
          move_codes_into_block(slot, extra.codes, block);
        }
      }
    });
  }
}

StreamedState::Extras StreamedState::copy_out() {
  std::uint64_t bytes = 0;
  for (const StateUnit& unit : units_.all()) {
    for (const ParameterSlot& slot : unit.group.slots) {
      bytes += archived_bytes(slot);
    }
  }
  copies_ = tiers_->host().reserve(bytes, "copy of the optimizer state");
  announced_.clear();
  Extras extras;
  try {
    const Indices indices = with_content();
    announce(indices, Access::kRead);
    for (const std::size_t u : indices) {
      StateUnit& unit = units_.all()[u];
      const Lease lease = unit.store->acquire(*unit.block, Access::kRead);
      copy_out_of_block(fields_, optimizer_, unit.group.slots, lease.bytes());
      for (const ParameterSlot& slot : unit.group.slots) {
        const Extra extra{slot.master ? copy_of_master(slot, lease.bytes()) : at::Tensor(),
                          has_state(slot) ? copy_of_codes(slot, lease.bytes()) : at::Tensor()};
        if (extra.master.defined() || extra.codes.defined()) {
          extras[slot.listed().unsafeGetTensorImpl()] = extra;
        }
      }
    }
  } catch (...) {
    clear();
    throw;
  }
  return extras;
}

void StreamedState::clear() noexcept {
  for (const StateUnit& unit : units_.all()) {
    clear_fields(fields_, optimizer_, unit.group.slots);
  }
  copies_ = {};
}

StreamedState::Indices StreamedState::with_content() const {
  return with_slot(0, [&](const ParameterSlot& slot) { return has_state(slot) || slot.master.has_value(); });
}

void StreamedState::visit(const StateVisitor& visitor) {
  announced_.clear();
  const Indices indices = with_content();
  announce(indices, Access::kRead);
  for (const std::size_t u : indices) {
    StateUnit& unit = units_.all()[u];
    const Lease lease = unit.store->acquire(*unit.block, Access::kRead);
    for_each_stored(unit, lease.bytes(), visitor);
  }
}

void StreamedState::list(const StateVisitor& visitor) const {
  for (const std::size_t u : with_content()) {
    for_each_stored(units_.all()[u], {}, visitor);
  }
}

void StreamedState::rewrite(const StateVisitor& fill) {
  announced_.clear();
  const Indices indices = with_content();
  announce(indices, Access::kReadWrite);
  for (const std::size_t u : indices) {
    update(units_.all()[u], [&](std::span<std::byte> block) { for_each_stored(units_.all()[u], block, fill); });
  }
}

void StreamedState::for_each_stored(const StateUnit& unit, std::span<std::byte> block,
                                    const StateVisitor& visitor) const {
  for (const ParameterSlot& slot : unit.group.slots) {
    if (!has_state(slot) && !slot.master) {
      continue;
    }
    for (const StoredTensor& tensor : stored_tensors(fields_, slot, block)) {
      visitor(slot, tensor);
    }
  }
}

StepBytes StreamedState::next_step_bytes() const {
  StepBytes bytes;
  for (const StateUnit& unit : units_.all()) {
    if (unit.on_disk) {
      bytes.read += unit.written ? offload::page_ceil(unit.group.bytes) : 0;
      bytes.written += offload::page_ceil(unit.group.bytes);
    }
  }
  return bytes;
}

std::string StreamedState::describe_update() const {
  std::string text = "the fused kernels (" + kernel_instruction_set() + ") update " +
                     std::to_string(placement().fused_parameters) + " parameters";
  if (placement().other_parameters == 0) {
    return text;
  }
  text += ", LibTorch's " + std::string(fields_.optimizer()) + " the other " +
          std::to_string(placement().other_parameters) + ", such as ";
  for (const StateUnit& unit : units_.all()) {
    for (const ParameterSlot& slot : unit.group.slots) {
      if (!slot.fused) {
        return text + slot.name + ", which " + kernel_refusal(slot.parameter);
      }
    }
  }
  return text;
}

StepBytes StreamedState::steady_step_bytes() const { return {placement().disk_bytes, placement().disk_bytes}; }

}  // namespace spillway::optimizer

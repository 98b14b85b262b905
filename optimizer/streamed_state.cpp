#include <spillway/optimizer/streamed_state.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

#include <spillway/optimizer/bound_state.hpp>

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
    : optimizer_(optimizer), fields_(fields), tiers_(std::move(tiers)), units_(fields, tiers_, std::move(options)) {}

void StreamedState::follow(const ParamGroups& groups) {
  const std::size_t first_new = units_.all().size();
  units_.follow(groups, optimizer_.state());
  construct_states(first_new, groups);
  take_over(first_new);
}

void StreamedState::construct_states(std::size_t first_unit, const ParamGroups& groups) {
  for (std::size_t u = first_unit; u < units_.all().size(); ++u) {
    const SubGroup& group = units_.all()[u].group;
    for (const Member& member : group.members) {
      const at::Tensor& parameter = group.slots[member.slot].parameter;
      void* const key = parameter.unsafeGetTensorImpl();
      if (optimizer_.state().count(key) != 0) {
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
                    [&](const Member& member) { return units_.has_gradient(group.slots[member.slot].parameter); })) {
      indices.push_back(u);
    }
  }
  return indices;
}

StreamedState::Indices StreamedState::with_state(std::size_t first_unit) const {
  Indices indices;
  for (std::size_t u = first_unit; u < units_.all().size(); ++u) {
    const StateUnit& unit = units_.all()[u];
    if (unit.block && std::any_of(unit.group.slots.begin(), unit.group.slots.end(), [&](const ParameterSlot& slot) {
          return optimizer_.state().count(slot.parameter.unsafeGetTensorImpl()) != 0;
        })) {
      indices.push_back(u);
    }
  }
  return indices;
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

void StreamedState::step() {
  const Indices indices = with_gradient();
  begin_step(indices);
  for (const std::size_t u : indices) {
    step(units_.all()[u]);
  }
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

// LibTorch's own step, with nothing in its groups but the parameters of this unit that have a gradient.
void StreamedState::step(StateUnit& unit) {
  std::vector<torch::optim::OptimizerParamGroup>& groups = optimizer_.param_groups();
  for (auto& group : groups) {
    group.params().clear();
  }
  std::vector<bool> active(unit.group.slots.size());
  for (const Member& member : unit.group.members) {
    const at::Tensor& parameter = unit.group.slots[member.slot].parameter;
    if (parameter.grad().defined()) {
      groups[member.group].params().push_back(parameter);
      active[member.slot] = true;
    }
  }
  std::vector<ParameterSlot*> slots;
  for (std::size_t s = 0; s < active.size(); ++s) {
    if (active[s]) {
      slots.push_back(&unit.group.slots[s]);
    }
  }
  update(unit, [&](std::span<std::byte> block) {
    BoundState bound(fields_, optimizer_, std::move(slots), block);
    optimizer_.step();
    bound.write_back();
  });
}

void StreamedState::flush() {
  for (const auto& store : units_.stores()) {
    store->flush();
  }
}

void StreamedState::take_over(std::size_t first_unit) {
  const Indices indices = with_state(first_unit);
  if (indices.empty()) {
    return;
  }
  announced_.clear();
  announce(indices, Access::kReadWrite);
  for (const std::size_t u : indices) {
    StateUnit& unit = units_.all()[u];
    update(unit, [&](std::span<std::byte> block) { move_into_block(fields_, optimizer_, unit.group.slots, block); });
  }
}

void StreamedState::copy_out() {
  copies_ = tiers_->host().reserve(placement().state_bytes, "copy of the optimizer state");
  announced_.clear();
  try {
    const Indices indices = with_state(0);
    announce(indices, Access::kRead);
    for (const std::size_t u : indices) {
      StateUnit& unit = units_.all()[u];
      const Lease lease = unit.store->acquire(*unit.block, Access::kRead);
      copy_out_of_block(fields_, optimizer_, unit.group.slots, lease.bytes());
    }
  } catch (...) {
    clear();
    throw;
  }
}

void StreamedState::clear() noexcept {
  for (const StateUnit& unit : units_.all()) {
    clear_fields(fields_, optimizer_, unit.group.slots);
  }
  copies_ = {};
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

StepBytes StreamedState::steady_step_bytes() const { return {placement().disk_bytes, placement().disk_bytes}; }

}  // namespace spillway::optimizer

#include <spillway/optimizer/streamed_state.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include <spillway/offload/error.hpp>
#include <spillway/offload/planner.hpp>
#include <spillway/optimizer/bound_state.hpp>

namespace spillway::optimizer {

using offload::Access;
using offload::BlockId;
using offload::BlockStore;
using offload::Lease;
using offload::Tier;

struct StreamedState::Unit {
  SubGroup group;
  BlockStore* store = nullptr;
  std::optional<BlockId> block;  // None where no parameter has state to move.
  bool on_disk = false;
  bool written = false;  // Whether a step would have to read it.

  [[nodiscard]] bool has_state(const torch::optim::Optimizer& optimizer) const {
    return std::any_of(group.slots.begin(), group.slots.end(), [&](const ParameterSlot& slot) {
      return optimizer.state().count(slot.parameter.unsafeGetTensorImpl()) != 0;
    });
  }
};

struct StreamedState::NewParameters {
  std::vector<ParameterSlot> slots;
  std::vector<at::Tensor> unplaced;
};

namespace {

std::string name_of(std::size_t group, std::size_t index) {
  return "parameter " + std::to_string(index) + " of group " + std::to_string(group);
}

}  // namespace

StreamedState::StreamedState(torch::optim::Optimizer& optimizer, const StateFields& fields,
                             std::shared_ptr<offload::Tiers> tiers, StreamedStateOptions options)
    : optimizer_(optimizer), fields_(fields), tiers_(std::move(tiers)), options_(options) {}

StreamedState::~StreamedState() = default;

bool StreamedState::changed(const ParamGroups& groups) const {
  const auto same_list = [](const auto& followed, const auto& group) {
    return std::equal(followed.begin(), followed.end(), group.params().begin(), group.params().end(),
                      [](const auto* impl, const at::Tensor& now) { return impl == now.unsafeGetTensorImpl(); });
  };
  return !std::equal(followed_.begin(), followed_.end(), groups.begin(), groups.end(), same_list) ||
         std::any_of(unplaced_.begin(), unplaced_.end(), [](const at::Tensor& t) { return t.grad().defined(); });
}

void StreamedState::follow(const ParamGroups& groups) {
  if (!changed(groups)) {
    return;
  }
  NewParameters found = find_new(groups);
  const std::size_t first_new = units_.size();
  if (!found.slots.empty()) {
    add_units(std::move(found.slots));
  }
  unplaced_ = std::move(found.unplaced);
  list_members(groups);
  take_over(first_new);
}

StreamedState::NewParameters StreamedState::find_new(const ParamGroups& groups) const {
  NewParameters found;
  std::unordered_map<const c10::TensorImpl*, FieldMask> needed;  // Over all uses of a tied parameter.
  for (const auto& group : groups) {
    const FieldMask mask = fields_.needed(group.options());
    for (const at::Tensor& parameter : group.params()) {
      needed[parameter.unsafeGetTensorImpl()] |= mask;
    }
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto& params = groups[g].params();
    for (std::size_t i = 0; i < params.size(); ++i) {
      const auto first_use = needed.find(params[i].unsafeGetTensorImpl());
      if (first_use == needed.end() || places_.count(first_use->first) != 0) {
        continue;
      }
      const auto state = optimizer_.state().find(params[i].unsafeGetTensorImpl());
      const bool stepped = state != optimizer_.state().end();
      if (stepped || params[i].requires_grad() || params[i].grad().defined()) {
        found.slots.push_back(
            make_slot(params[i], name_of(g, i), first_use->second, fields_, stepped ? state->second.get() : nullptr));
      } else {
        found.unplaced.push_back(params[i]);
      }
      needed.erase(first_use);
    }
  }
  return found;
}

// Without any limit only the ring is taken: who asks for the disk wants the memory.
std::uint64_t StreamedState::host_share(const std::vector<std::uint64_t>& block_bytes) const {
  const std::uint64_t available = tiers_->host().available_bytes();
  const std::uint64_t used = placement_.resident_bytes + placement_.ring_bytes;
  if (options_.host_bytes != offload::kUnlimitedBytes) {
    return std::min(available, options_.host_bytes - std::min(used, options_.host_bytes));
  }
  if (options_.disk_allowed && tiers_->host().limit_bytes() == offload::kUnlimitedBytes && !block_bytes.empty()) {
    return options_.ring_slots * offload::page_ceil(*std::max_element(block_bytes.begin(), block_bytes.end()));
  }
  return available;
}

void StreamedState::add_units(std::vector<ParameterSlot> slots) {
  SubGroupLimits limits;
  if (options_.sub_group_numel != 0) {
    limits.numel = options_.sub_group_numel;
  } else {
    limits.bytes =
        default_sub_group_bytes(std::min(options_.host_bytes, tiers_->host().limit_bytes()), options_.ring_slots);
  }
  std::vector<Unit> units;
  std::vector<std::uint64_t> block_bytes;
  for (SubGroup& group : pack(std::move(slots), limits, units_.size())) {
    if (group.bytes > 0) {
      block_bytes.push_back(group.bytes);
    }
    units.push_back({std::move(group), nullptr, std::nullopt, false, false});
  }
  std::unique_ptr<BlockStore> store;
  offload::Placement placed;
  if (!block_bytes.empty()) {
    placed = offload::place({"optimizer state", block_bytes, host_share(block_bytes), options_.ring_slots,
                             options_.disk_allowed, /*written_back=*/true});
    offload::BlockStoreOptions options;
    options.name = "optimizer state";
    options.ring_slots = options_.ring_slots;
    options.slot_bytes = placed.ring_bytes / options_.ring_slots;
    options.resident_bytes = placed.resident_bytes;
    options.disk_bytes = placed.disk_bytes;
    store = std::make_unique<BlockStore>(tiers_, options);
    auto home = placed.home.begin();
    for (Unit& unit : units) {
      if (unit.group.bytes > 0) {
        unit.store = store.get();
        unit.on_disk = *home == Tier::kDisk;
        unit.block = store->add(unit.group.bytes, *home++, unit.group.label);
      }
    }
  }
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (std::size_t s = 0; s < units[u].group.slots.size(); ++s) {
      const ParameterSlot& slot = units[u].group.slots[s];
      places_[slot.parameter.unsafeGetTensorImpl()] = {units_.size() + u, s};
      placement_.state_bytes += slot.fields.size() * slot.parameter.nbytes();
    }
  }
  placement_.sub_groups += units.size();
  placement_.resident_bytes += placed.resident_bytes;
  placement_.ring_bytes += placed.ring_bytes;
  placement_.disk_bytes += placed.disk_bytes;
  std::move(units.begin(), units.end(), std::back_inserter(units_));
  if (store != nullptr) {
    stores_.push_back(std::move(store));
  }
}

void StreamedState::list_members(const ParamGroups& groups) {
  for (Unit& unit : units_) {
    unit.group.members.clear();
  }
  followed_.assign(groups.size(), {});
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const at::Tensor& parameter : groups[g].params()) {
      followed_[g].push_back(parameter.unsafeGetTensorImpl());
      const auto place = places_.find(parameter.unsafeGetTensorImpl());
      if (place != places_.end()) {
        units_[place->second.unit].group.members.push_back({g, place->second.slot});
      }
    }
  }
}

void StreamedState::check(const ParamGroups& groups) const {
  std::vector<FieldMask> needed;
  needed.reserve(groups.size());
  for (const auto& group : groups) {
    needed.push_back(fields_.needed(group.options()));
  }
  for (const Unit& unit : units_) {
    for (const Member& member : unit.group.members) {
      const ParameterSlot& slot = unit.group.slots[member.slot];
      const at::Tensor& gradient = slot.parameter.grad();
      if (!gradient.defined()) {
        continue;
      }
      for (std::size_t field = 0; field < fields_.names().size(); ++field) {
        if ((needed[member.group] & ~slot.planned) >> field & 1U) {
          throw ConfigError("the options of group " + std::to_string(member.group) + " ask " +
                            std::string(fields_.optimizer()) + " for the state tensor " +
                            std::string(fields_.names()[field]) + ", for which no room was made (" + slot.name +
                            "): options that add state are set before wrap(); set them and wrap again");
        }
      }
      if (needed[member.group] != 0 && gradient.layout() != at::kStrided) {
        throw Error("the gradient of " + slot.name + " is sparse; " + std::string(fields_.optimizer()) +
                    " with state needs dense gradients: take to_dense() of it, or make the layer's gradient dense");
      }
    }
  }
}

std::vector<std::size_t> StreamedState::units_with_gradient() const {
  std::vector<std::size_t> result;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const SubGroup& group = units_[u].group;
    if (std::any_of(group.members.begin(), group.members.end(),
                    [&](const Member& m) { return group.slots[m.slot].parameter.grad().defined(); })) {
      result.push_back(u);
    }
  }
  return result;
}

void StreamedState::announce(const std::vector<std::size_t>& units, Access access) {
  for (const auto& store : stores_) {
    std::vector<BlockId> order;
    for (const std::size_t u : units) {
      if (units_[u].store == store.get()) {
        order.push_back(*units_[u].block);
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
    for (std::size_t u = 0; u < units_.size(); ++u) {
      announced_.push_back(u);
    }
  }
  announce(announced_, Access::kReadWrite);
}

void StreamedState::step() {
  std::vector<std::size_t> units = units_with_gradient();
  if (units.empty()) {
    return;
  }
  if (units != std::exchange(announced_, {})) {
    announce(units, Access::kReadWrite);
  }
  for (const std::size_t u : units) {
    step_unit(units_[u]);
  }
  usual_ = std::move(units);
}

void StreamedState::step_unit(Unit& unit) {
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
  Lease lease = unit.block ? unit.store->acquire(*unit.block, Access::kReadWrite) : Lease();
  try {
    BoundState bound(fields_, optimizer_, std::move(slots), lease.bytes());
    optimizer_.step();
    bound.write_back();
  } catch (...) {
    lease.abandon();
    throw;
  }
  unit.written = unit.on_disk;
  lease.release();
}

void StreamedState::flush() {
  for (const auto& store : stores_) {
    store->flush();
  }
}

void StreamedState::take_over() { take_over(0); }

void StreamedState::take_over(std::size_t first_unit) {
  std::vector<std::size_t> units;
  for (std::size_t u = first_unit; u < units_.size(); ++u) {
    if (units_[u].block && units_[u].has_state(optimizer_)) {
      units.push_back(u);
    }
  }
  if (units.empty()) {
    return;
  }
  announced_.clear();
  announce(units, Access::kReadWrite);
  for (const std::size_t u : units) {
    Unit& unit = units_[u];
    Lease lease = unit.store->acquire(*unit.block, Access::kReadWrite);
    try {
      move_into_block(fields_, optimizer_, unit.group.slots, lease.bytes());
    } catch (...) {
      lease.abandon();
      throw;
    }
    unit.written = unit.on_disk;
    lease.release();
  }
}

void StreamedState::copy_out() {
  copies_ = tiers_->host().reserve(placement_.state_bytes, "optimizer state being saved");
  std::vector<std::size_t> units;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (units_[u].block && units_[u].has_state(optimizer_)) {
      units.push_back(u);
    }
  }
  announced_.clear();
  try {
    announce(units, Access::kRead);
    for (const std::size_t u : units) {
      const Lease lease = units_[u].store->acquire(*units_[u].block, Access::kRead);
      copy_out_of_block(fields_, optimizer_, units_[u].group.slots, lease.bytes());
    }
  } catch (...) {
    clear();
    throw;
  }
}

void StreamedState::clear() noexcept {
  for (const Unit& unit : units_) {
    clear_fields(fields_, optimizer_, unit.group.slots);
  }
  copies_ = {};
}

StepBytes StreamedState::next_step_bytes() const {
  StepBytes bytes;
  for (const Unit& unit : units_) {
    if (unit.on_disk) {
      bytes.read += unit.written ? offload::page_ceil(unit.group.bytes) : 0;
      bytes.written += offload::page_ceil(unit.group.bytes);
    }
  }
  return bytes;
}

StepBytes StreamedState::steady_step_bytes() const { return {placement_.disk_bytes, placement_.disk_bytes}; }

StatePlacement StreamedState::placement() const { return placement_; }

}  // namespace spillway::optimizer

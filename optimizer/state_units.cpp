#include <spillway/optimizer/state_units.hpp>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

#include <spillway/offload/error.hpp>
#include <spillway/offload/planner.hpp>
#include <spillway/optimizer/piece_state.hpp>
#include <spillway/optimizer/tensor_piece.hpp>

namespace spillway::optimizer {
namespace {

using offload::BlockStore;
using offload::Tier;

const char* const kName = "optimizer state";

// "Float [3, 4] on cpu".
std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << ' ' << tensor.sizes() << " on " << tensor.device();
  return text.str();
}

std::string name_of(std::size_t group, std::size_t index) {
  return "parameter " + std::to_string(index) + " of group " + std::to_string(group);
}

// Kernels look at nothing but memory: what they read and write must be what the slot was made for.
void check_memory(const ParameterSlot& slot) {
  const at::Tensor& parameter = slot.parameter;
  const at::Tensor& gradient = parameter.grad();
  if (parameter.sizes() != slot.sizes || parameter.strides() != slot.strides || parameter.scalar_type() != slot.type ||
      !parameter.is_cpu()) {
    throw Error(slot.name +
                " was resized, moved to another device or given another layout or type since wrap(): undo "
                "that, or make and wrap the optimizer anew");
  }
  if (gradient.sizes() != parameter.sizes() || gradient.scalar_type() != parameter.scalar_type() ||
      !gradient.is_cpu()) {
    throw Error("the gradient of " + slot.name + " is " + describe(gradient) + ", the parameter " +
                describe(parameter) + ": an update needs them alike");
  }
}

// The store for blocks that were placed; null where there are none.
std::unique_ptr<BlockStore> make_store(const std::shared_ptr<offload::Tiers>& tiers, const offload::Placement& placed,
                                       unsigned ring_slots) {
  if (placed.home.empty()) {
    return nullptr;
  }
  offload::BlockStoreOptions options;
  options.name = kName;
  options.ring_slots = ring_slots;
  options.slot_bytes = placed.ring_bytes / ring_slots;
  options.resident_bytes = placed.resident_bytes;
  options.disk_bytes = placed.disk_bytes;
  options.reuse_buffers = false;  // The forecast counts every block of every step.
  return std::make_unique<BlockStore>(tiers, std::move(options));
}

}  // namespace

StateUnits::StateUnits(const StateFields& fields, std::shared_ptr<offload::Tiers> tiers, StreamedStateOptions options)
    : fields_(fields), tiers_(std::move(tiers)), options_(std::move(options)) {}

bool StateUnits::has_gradient(const at::Tensor& parameter) const {
  return options_.has_gradient ? options_.has_gradient(parameter) : parameter.grad().defined();
}

bool StateUnits::owns(const at::Tensor& parameter) const {
  return !options_.shard_of || options_.shard_of(parameter).has_value();
}

// A gradient that is taken finds its parameter's state when it is not frozen any more.
bool StateUnits::wants_state(const at::Tensor& parameter) const {
  return has_gradient(parameter) || (options_.shard_of && parameter.requires_grad());
}

void StateUnits::follow(const ParamGroups& groups, const States& states) {
  if (!changed(groups)) {
    return;
  }
  NewParameters found = find_new(groups, states);
  if (!found.slots.empty()) {
    add(std::move(found.slots));
  }
  frozen_ = std::move(found.frozen);
  list_members(groups);
}

bool StateUnits::changed(const ParamGroups& groups) const {
  const auto same_list = [](const auto& followed, const auto& group) {
    return std::equal(followed.begin(), followed.end(), group.params().begin(), group.params().end(),
                      [](const auto* impl, const at::Tensor& now) { return impl == now.unsafeGetTensorImpl(); });
  };
  return !std::equal(followed_.begin(), followed_.end(), groups.begin(), groups.end(), same_list) ||
         std::any_of(frozen_.begin(), frozen_.end(),
                     [this](const at::Tensor& parameter) { return wants_state(parameter); });
}

StateUnits::NewParameters StateUnits::find_new(const ParamGroups& groups, const States& states) const {
  std::unordered_map<const c10::TensorImpl*, FieldMask> needed;  // Over all uses of a tied parameter.
  for (const auto& group : groups) {
    const FieldMask mask = fields_.needed(group.options());
    for (const at::Tensor& parameter : group.params()) {
      needed[parameter.unsafeGetTensorImpl()] |= mask;
    }
  }
  NewParameters found;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < groups[g].params().size(); ++i) {
      const at::Tensor& parameter = groups[g].params()[i];
      const auto first_use = needed.find(parameter.unsafeGetTensorImpl());
      if (first_use == needed.end() || places_.count(first_use->first) != 0 || !owns(parameter)) {
        continue;
      }
      if (states.count(parameter.unsafeGetTensorImpl()) != 0 || parameter.requires_grad() || has_gradient(parameter)) {
        found.slots.push_back(slot_for(parameter, name_of(g, i), first_use->second, states));
      } else {
        found.frozen.push_back(parameter);
      }
      needed.erase(first_use);
    }
  }
  std::stable_sort(found.slots.begin(), found.slots.end(),
                   [](const ParameterSlot& a, const ParameterSlot& b) { return a.part < b.part; });
  return found;
}

ParameterSlot StateUnits::slot_for(const at::Tensor& parameter, std::string name, FieldMask needed,
                                   const States& states) const {
  const auto state = states.find(parameter.unsafeGetTensorImpl());
  torch::optim::OptimizerParamState* const existing = state == states.end() ? nullptr : state->second.get();
  const OwnedShard shard = options_.shard_of ? *options_.shard_of(parameter) : OwnedShard{};
  ParameterSlot slot;
  if (shard.piece) {
    const auto [begin, end] = *shard.piece;
    const auto of_piece = existing == nullptr ? nullptr : split_state(fields_, *existing, parameter, name, begin, end);
    slot =
        make_slot(piece_view(parameter, begin, end), std::move(name), needed, fields_, of_piece.get(), options_.form);
    slot.whole = parameter;
    slot.begin = begin;
  } else {
    slot = make_slot(parameter, std::move(name), needed, fields_, existing, options_.form);
  }
  slot.part = shard.part;
  return slot;
}

void StateUnits::follow_memory() {
  for (StateUnit& unit : units_) {
    for (ParameterSlot& slot : unit.group.slots) {
      if (slot.whole.defined()) {
        const at::Tensor now = piece_view(slot.whole, slot.begin, slot.end());
        if (now.const_data_ptr() != slot.parameter.const_data_ptr()) {
          slot.parameter.set_data(now);
        }
      }
    }
  }
}

SubGroupLimits StateUnits::limits() const {
  if (fields_.whole_model()) {
    return {};
  }
  if (options_.sub_group_numel != 0) {
    return {.numel = options_.sub_group_numel};
  }
  return {.bytes = default_sub_group_bytes(std::min(options_.host_bytes, tiers_->host().limit_bytes()),
                                           options_.ring_slots)};
}

// Without any limit only the ring is taken: who asks for the disk wants the memory.
std::uint64_t StateUnits::host_share(const std::vector<std::uint64_t>& block_bytes) const {
  const std::uint64_t available = tiers_->host().available_bytes();
  if (options_.host_bytes != offload::kUnlimitedBytes) {
    const std::uint64_t used = placement_.resident_bytes + placement_.ring_bytes;
    return std::min(available, options_.host_bytes - std::min(used, options_.host_bytes));
  }
  if (options_.disk_allowed && tiers_->host().limit_bytes() == offload::kUnlimitedBytes) {
    return options_.ring_slots * offload::page_ceil(*std::max_element(block_bytes.begin(), block_bytes.end()));
  }
  return available;
}

void StateUnits::add(std::vector<ParameterSlot> slots) {
  std::vector<StateUnit> units;
  std::vector<std::uint64_t> block_bytes;
  for (SubGroup& group : pack(std::move(slots), limits(), units_.size())) {
    if (group.bytes > 0) {
      block_bytes.push_back(group.bytes);
    }
    units.push_back({std::move(group), nullptr, std::nullopt, false, false});
  }
  offload::Placement placed;
  if (!block_bytes.empty()) {
    placed = offload::place({.name = units_.empty() ? kName : "optimizer state of parameters that came later",
                             .block_bytes = block_bytes,
                             .host_bytes = host_share(block_bytes),
                             .ring_slots = options_.ring_slots,
                             .disk_allowed = options_.disk_allowed});
  }
  std::unique_ptr<BlockStore> store = make_store(tiers_, placed, options_.ring_slots);
  auto home = placed.home.begin();
  for (StateUnit& unit : units) {
    if (unit.group.bytes > 0) {
      unit.store = store.get();
      unit.on_disk = *home == Tier::kDisk;
      unit.block = store->add(unit.group.bytes, *home++, unit.group.label);
    }
  }
  // Nothing was changed up to here.
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (std::size_t s = 0; s < units[u].group.slots.size(); ++s) {
      const ParameterSlot& slot = units[u].group.slots[s];
      places_[slot.listed().unsafeGetTensorImpl()] = {units_.size() + u, s};
      placement_.state_bytes += slot_bytes(slot);
      ++(slot.fused ? placement_.fused_parameters : placement_.other_parameters);
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

std::uint64_t StateUnits::read_ahead_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& store : stores_) {
    unsigned slots = options_.ring_slots;
    for (const StateUnit& unit : units_) {
      if (unit.store == store.get() && unit.on_disk && slots > 0) {
        bytes += offload::page_ceil(unit.group.bytes);
        --slots;
      }
    }
  }
  return bytes;
}

void StateUnits::list_members(const ParamGroups& groups) {
  for (StateUnit& unit : units_) {
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

void StateUnits::check(const ParamGroups& groups) const {
  std::vector<FieldMask> needed;
  needed.reserve(groups.size());
  for (const auto& group : groups) {
    needed.push_back(fields_.needed(group.options()));
  }
  for (const StateUnit& unit : units_) {
    for (const Member& member : unit.group.members) {
      const ParameterSlot& slot = unit.group.slots[member.slot];
      if (!has_gradient(slot.listed())) {
        continue;
      }
      check_room(slot, needed[member.group], member.group);
      const at::Tensor& gradient = slot.parameter.grad();
      if ((needed[member.group] != 0 || slot.master) && gradient.defined() && gradient.layout() != at::kStrided) {
        throw Error("the gradient of " + slot.name + " is sparse; " + std::string(fields_.optimizer()) +
                    " with state needs dense gradients: take to_dense() of it, or make the layer's gradient dense");
      }
      if (slot.fused && gradient.defined() && gradient.layout() == at::kStrided) {
        check_memory(slot);
      }
    }
  }
}

void StateUnits::check_room(const ParameterSlot& slot, FieldMask needed, std::size_t group) const {
  for (std::size_t field = 0; field < fields_.names().size(); ++field) {
    if (((needed & ~slot.planned) >> field & 1U) != 0) {
      throw ConfigError("the options of group " + std::to_string(group) + " ask " + std::string(fields_.optimizer()) +
                        " for the state tensor " + std::string(fields_.names()[field]) + ", for which " + slot.name +
                        " has no room: options that add state are set before wrap(); set them and wrap again");
    }
  }
}

}  // namespace spillway::optimizer

// The state of pieces of parameters: kept under the pieces, loaded and saved under the parameters.
#include <cstddef>
#include <cstdint>
#include <utility>

#include <spillway/optimizer/piece_state.hpp>
#include <spillway/optimizer/streamed_state.hpp>
#include <spillway/optimizer/tensor_piece.hpp>

namespace spillway::optimizer {

bool StreamedState::has_state_of_whole(const ParameterSlot& slot) const {
  return slot.whole.defined() && optimizer_.state().count(slot.whole.unsafeGetTensorImpl()) != 0;
}

void StreamedState::for_each_slot(const std::function<void(const ParameterSlot&)>& work) const {
  for (const StateUnit& unit : units_.all()) {
    for (const ParameterSlot& slot : unit.group.slots) {
      work(slot);
    }
  }
}

void StreamedState::split_states(std::size_t first_unit) {
  auto& states = optimizer_.state();
  for (std::size_t u = first_unit; u < units_.all().size(); ++u) {
    for (const ParameterSlot& slot : units_.all()[u].group.slots) {
      if (has_state_of_whole(slot)) {
        const auto whole = states.find(slot.whole.unsafeGetTensorImpl());
        auto piece = split_state(all_fields_, *whole->second, slot.whole, slot.name, slot.begin, slot.end());
        states.erase(whole);
        states[slot.parameter.unsafeGetTensorImpl()] = std::move(piece);
      }
    }
  }
}

void StreamedState::move_states(bool to_parameters) noexcept {
  auto& states = optimizer_.state();
  for (const StateUnit& unit : units_.all()) {
    for (const ParameterSlot& slot : unit.group.slots) {
      void* const from = (to_parameters ? slot.parameter : slot.whole).unsafeGetTensorImpl();
      void* const to = (to_parameters ? slot.whole : slot.parameter).unsafeGetTensorImpl();
      const auto found = slot.whole.defined() ? states.find(from) : states.end();
      if (found != states.end()) {
        auto state = std::move(found->second);
        states.erase(found);
        states[to] = std::move(state);
      }
    }
  }
}

void StreamedState::drop_states_of_wholes() noexcept {
  for (const StateUnit& unit : units_.all()) {
    for (const ParameterSlot& slot : unit.group.slots) {
      if (slot.whole.defined()) {
        optimizer_.state().erase(slot.whole.unsafeGetTensorImpl());
      }
    }
  }
}

StreamedState::Extra StreamedState::extra_of(const Extras& extras, const ParameterSlot& slot) const {
  const auto found = extras.find(slot.listed().unsafeGetTensorImpl());
  if (found == extras.end() || !slot.whole.defined()) {
    return found == extras.end() ? Extra() : found->second;
  }
  const auto& [master, codes] = found->second;
  const auto numel = static_cast<std::uint64_t>(slot.whole.numel());
  return {master.defined() ? piece_in_order_of(slot.whole, master, slot.begin, slot.end()) : at::Tensor(),
          codes.defined() ? split_codes(codes, numel, slot.begin, slot.end()) : at::Tensor()};
}

}  // namespace spillway::optimizer

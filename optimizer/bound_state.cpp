#include <spillway/optimizer/bound_state.hpp>

#include <utility>

#include <ATen/ops/from_blob.h>

#include <spillway/offload/error.hpp>

namespace spillway::optimizer {
namespace {

using torch::optim::OptimizerParamState;

OptimizerParamState* find_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : found->second.get();
}

// The bytes of a state tensor, on the CPU.
at::Tensor view(const ParameterSlot& slot, const FieldSlot& field, std::span<std::byte> block) {
  return at::from_blob(block.data() + field.offset, slot.parameter.sizes(), field.strides,
                       at::device(at::kCPU).dtype(field.type));
}

// Copies `tensor` into the block, whose strides follow it: later steps then visit the elements in the order in which
// LibTorch would.
void store(const at::Tensor& tensor, const StateFields& fields, const ParameterSlot& slot, FieldSlot& field,
           std::span<std::byte> block) {
  if (tensor.sizes() != slot.parameter.sizes() || !may_have_type(slot, tensor.scalar_type()) ||
      tensor.layout() != at::kStrided) {
    throw Error("the step made a state tensor " + std::string(fields.names()[field.field]) + " for " + slot.name +
                " that is not of the parameter's size, type and layout: is its gradient?");
  }
  if (!slot.fused && tensor.is_non_overlapping_and_dense()) {
    field.strides = tensor.strides().vec();
  }
  view(slot, field, block).copy_(tensor);
}

}  // namespace

BoundState::BoundState(const StateFields& fields, torch::optim::Optimizer& optimizer, std::span<std::byte> block)
    : fields_(fields), optimizer_(optimizer), block_(block) {}

// Delegates, so that the destructor cleans up after an exception in here too.
BoundState::BoundState(const StateFields& fields, torch::optim::Optimizer& optimizer, std::vector<ParameterSlot*> slots,
                       std::span<std::byte> block)
    : BoundState(fields, optimizer, block) {
  slots_ = std::move(slots);
  for (ParameterSlot* slot : slots_) {
    if (slot->fields.empty()) {
      continue;
    }
    OptimizerParamState* state = find_state(optimizer_, slot->parameter);
    if (state == nullptr) {
      std::unique_ptr<OptimizerParamState> zeros = fields_.make_zero_state();
      if (zeros == nullptr) {
        continue;
      }
      state = zeros.get();
      optimizer_.state()[slot->parameter.unsafeGetTensorImpl()] = std::move(zeros);
    }
    for (const FieldSlot& field : slot->fields) {
      fields_.tensor(*state, field.field) = view(*slot, field, block_).to(slot->parameter.device());
    }
  }
}

BoundState::~BoundState() {
  for (const ParameterSlot* slot : slots_) {
    clear_fields(fields_, optimizer_, {slot, 1});
  }
}

void BoundState::write_back() {
  for (ParameterSlot* slot : slots_) {
    OptimizerParamState* state = find_state(optimizer_, slot->parameter);
    if (state == nullptr) {
      continue;
    }
    for (FieldSlot& field : slot->fields) {
      const at::Tensor& tensor = fields_.tensor(*state, field.field);
      if (tensor.defined() && tensor.const_data_ptr() != block_.data() + field.offset) {
        store(tensor, fields_, *slot, field, block_);
      }
    }
  }
}

void move_into_block(const StateFields& fields, torch::optim::Optimizer& optimizer, std::span<ParameterSlot> slots,
                     std::span<std::byte> block) {
  for (ParameterSlot& slot : slots) {
    OptimizerParamState* state = find_state(optimizer, slot.parameter);
    if (state == nullptr) {
      continue;
    }
    for (FieldSlot& field : slot.fields) {
      at::Tensor& tensor = fields.tensor(*state, field.field);
      if (tensor.defined()) {
        store(tensor, fields, slot, field, block);
        tensor = at::Tensor();
      }
    }
  }
}

void copy_out_of_block(const StateFields& fields, torch::optim::Optimizer& optimizer, std::span<ParameterSlot> slots,
                       std::span<std::byte> block) {
  for (const ParameterSlot& slot : slots) {
    OptimizerParamState* state = find_state(optimizer, slot.parameter);
    if (state == nullptr) {
      continue;
    }
    for (const FieldSlot& field : slot.fields) {
      fields.tensor(*state, field.field) =
          view(slot, field, block).to(slot.parameter.device(), field.type, /*non_blocking=*/false, /*copy=*/true);
    }
  }
}

void clear_fields(const StateFields& fields, torch::optim::Optimizer& optimizer,
                  std::span<const ParameterSlot> slots) noexcept {
  for (const ParameterSlot& slot : slots) {
    if (OptimizerParamState* state = find_state(optimizer, slot.parameter)) {
      for (const FieldSlot& field : slot.fields) {
        fields.tensor(*state, field.field) = at::Tensor();
      }
    }
  }
}

}  // namespace spillway::optimizer

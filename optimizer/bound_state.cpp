#include <spillway/optimizer/bound_state.hpp>

#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/where.h>

#include <spillway/offload/error.hpp>
#include <spillway/offload/parallel.hpp>
#include <spillway/optimizer/state_codec.hpp>

namespace spillway::optimizer {
namespace {

using torch::optim::OptimizerParamState;

OptimizerParamState* find_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : found->second.get();
}

// Of the elements that lie at `memory` in the parameter's own order.
template <typename T>
std::span<T> elements(const ParameterSlot& slot, void* memory) {
  return {static_cast<T*>(memory), static_cast<std::size_t>(slot.parameter.numel())};
}

struct Codes {
  std::span<std::uint8_t> codes;
  std::span<float> scales;
  DynamicMap map;
};

// Adam is the optimizer that has codes, and its first moment the field that has signs.
Codes codes_of(const ParameterSlot& slot, const FieldSlot& field, std::span<std::byte> block) {
  std::byte* const memory = block.data() + field.offset;
  const auto codes = elements<std::uint8_t>(slot, memory);
  return {codes,
          {reinterpret_cast<float*>(memory + field.scales_offset), dynamic_blocks(codes.size())},
          field.field == 0 ? DynamicMap::kSigned : DynamicMap::kUnsigned};
}

// A coded field as it lies there.
at::Tensor bytes_of(const FieldSlot& field, std::span<std::byte> block) {
  return at::from_blob(block.data() + field.offset, {static_cast<std::int64_t>(field.bytes)},
                       at::TensorOptions(at::kByte));
}

// Without values, in the parameter's own order.
at::Tensor float_tensor(const ParameterSlot& slot) {
  return at::empty_strided(slot.sizes, slot.strides, at::TensorOptions(at::kFloat));
}

// The bytes of a state tensor that has no codes, on the CPU.
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
  if (field.type == at::kByte) {
    const at::Tensor values = float_tensor(slot).copy_(tensor);
    const Codes to = codes_of(slot, field, block);
    encode_dynamic(elements<float>(slot, values.mutable_data_ptr()), to.map, to.codes, to.scales,
                   offload::Parallel({.threads = 1}));
    return;
  }
  if (!slot.fused && tensor.is_non_overlapping_and_dense()) {
    field.strides = tensor.strides().vec();
  }
  view(slot, field, block).copy_(tensor);
}

// A copy of a state tensor as archives have it: float32 where kernels have a form of their own.
at::Tensor copy_of(const ParameterSlot& slot, const FieldSlot& field, std::span<std::byte> block) {
  if (field.type == at::kByte) {
    at::Tensor values = float_tensor(slot);
    const Codes from = codes_of(slot, field, block);
    decode_dynamic(from.codes, from.scales, from.map, elements<float>(slot, values.mutable_data_ptr()),
                   offload::Parallel({.threads = 1}));
    return values;
  }
  return view(slot, field, block)
      .to(slot.parameter.device(), slot.fused ? at::kFloat : field.type, /*non_blocking=*/false, /*copy=*/true);
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
      fields.tensor(*state, field.field) = copy_of(slot, field, block);
    }
  }
}

std::vector<StoredTensor> stored_tensors(const StateFields& fields, const ParameterSlot& slot,
                                         std::span<std::byte> block) {
  std::vector<StoredTensor> tensors;
  for (const FieldSlot& field : slot.fields) {
    tensors.push_back({std::string(fields.names()[field.field]),
                       field.type == at::kByte ? bytes_of(field, block) : view(slot, field, block)});
  }
  if (slot.master) {
    tensors.push_back({"master", view(slot, *slot.master, block)});
  }
  return tensors;
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

at::Tensor copy_of_master(const ParameterSlot& slot, std::span<std::byte> block) {
  const at::Tensor parameter = slot.parameter.detach();
  if (slot.master->type == at::kShort) {
    at::Tensor values = float_tensor(slot);
    join_masters(elements<const std::uint16_t>(slot, parameter.mutable_data_ptr()),
                 elements<const std::int16_t>(slot, block.data() + slot.master->offset),
                 elements<float>(slot, values.mutable_data_ptr()), offload::Parallel({.threads = 1}));
    return values;
  }
  // As an update would start from it.
  const at::Tensor master = view(slot, *slot.master, block);
  const at::Tensor unchanged = master.to(parameter.scalar_type()).view(at::kShort).eq(parameter.view(at::kShort));
  return at::where(unchanged, master, parameter.to(at::kFloat));
}

void move_master_into_block(const ParameterSlot& slot, const at::Tensor& master, std::span<std::byte> block) {
  if (slot.master->type == at::kShort) {
    const at::Tensor bits = float_tensor(slot).copy_(master).view(at::kInt);
    view(slot, *slot.master, block).copy_(bits);  // Keeps the low 16 bits.
  } else {
    view(slot, *slot.master, block).copy_(master);
  }
}

at::Tensor copy_of_codes(const ParameterSlot& slot, std::span<std::byte> block) {
  std::vector<at::Tensor> parts;
  for (const FieldSlot& field : slot.fields) {
    if (field.type == at::kByte) {
      parts.push_back(bytes_of(field, block));
    }
  }
  return parts.empty() ? at::Tensor() : at::cat(parts);
}

void move_codes_into_block(const ParameterSlot& slot, const at::Tensor& codes, std::span<std::byte> block) {
  std::int64_t wanted = 0;
  for (const FieldSlot& field : slot.fields) {
    wanted += field.type == at::kByte ? static_cast<std::int64_t>(field.bytes) : 0;
  }
  if (codes.scalar_type() != at::kByte || codes.dim() != 1 || codes.numel() != wanted) {
    return;
  }
  std::int64_t begin = 0;
  for (const FieldSlot& field : slot.fields) {
    if (field.type == at::kByte) {
      const auto bytes = static_cast<std::int64_t>(field.bytes);
      bytes_of(field, block).copy_(codes.narrow(0, begin, bytes));
      begin += bytes;
    }
  }
}

}  // namespace spillway::optimizer

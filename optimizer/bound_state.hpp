#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

#include <spillway/optimizer/state_fields.hpp>
#include <spillway/optimizer/state_layout.hpp>

namespace spillway::optimizer {

/// Makes the state objects of some parameters whole for as long as this lives: their tensors are views of `block`, or
/// copies on the parameter's device where that is not the CPU. Afterwards the tensors are undefined again, whatever
/// happened in between, so that nothing points into memory that was given back. All references outlive it.
class BoundState {
 public:
  /// A parameter without a state object gets one of zeros if the optimizer's own first step would make it so (`block`
  /// holds zeros there); otherwise that step makes it.
  BoundState(const StateFields& fields, torch::optim::Optimizer& optimizer, std::vector<ParameterSlot*> slots,
             std::span<std::byte> block);
  BoundState(const BoundState&) = delete;
  BoundState& operator=(const BoundState&) = delete;
  ~BoundState();

  /// Brings into the block what the step made anew or has on another device.
  /// @throws Error if it made a tensor that has no room in the block.
  void write_back();

 private:
  BoundState(const StateFields& fields, torch::optim::Optimizer& optimizer, std::span<std::byte> block);

  const StateFields& fields_;
  torch::optim::Optimizer& optimizer_;
  std::vector<ParameterSlot*> slots_;
  std::span<std::byte> block_;
};

/// Moves the tensors of existing state objects into `block` and leaves them undefined; parameters without a state
/// object are passed over.
void move_into_block(const StateFields& fields, torch::optim::Optimizer& optimizer, std::span<ParameterSlot> slots,
                     std::span<std::byte> block);

/// Fills the state objects of parameters that have one with copies of what `block` holds, on the parameter's device; in
/// float32 for parameters that kernels update.
void copy_out_of_block(const StateFields& fields, torch::optim::Optimizer& optimizer, std::span<ParameterSlot> slots,
                       std::span<std::byte> block);

/// The float32 weight that an update would start from, as a new tensor. Precondition: slot.master.
[[nodiscard]] at::Tensor copy_of_master(const ParameterSlot& slot, std::span<std::byte> block);

/// Undoes copy_of_master(). Where the parameter is not the rounded master it stays what counts. Precondition:
/// slot.master. @param master  float32, of the parameter's size.
void move_master_into_block(const ParameterSlot& slot, const at::Tensor& master, std::span<std::byte> block);

/// The codes and scales of a parameter's state in 8 bits, as bytes in a new tensor; undefined where it has none. To
/// code the decoded state anew would not give quite the same.
[[nodiscard]] at::Tensor copy_of_codes(const ParameterSlot& slot, std::span<std::byte> block);

/// Undoes copy_of_codes(). @param codes  passed over where it is not of the size that copy_of_codes() would give.
void move_codes_into_block(const ParameterSlot& slot, const at::Tensor& codes, std::span<std::byte> block);

/// A tensor of a slot's state, as a view of the bytes in its block.
struct StoredTensor {
  std::string name;   ///< "exp_avg", "master": as LibTorch names it, or what kernels keep.
  at::Tensor values;  ///< Of the parameter's size, in the type that it is stored in; codes of 8 bits with their scales
                      ///< as one row of bytes.
};

/// All that `block` holds of a parameter. Nothing is read; the views live as long as the block.
[[nodiscard]] std::vector<StoredTensor> stored_tensors(const StateFields& fields, const ParameterSlot& slot,
                                                       std::span<std::byte> block);

/// Leaves the tensors that live in blocks undefined.
void clear_fields(const StateFields& fields, torch::optim::Optimizer& optimizer,
                  std::span<const ParameterSlot> slots) noexcept;

}  // namespace spillway::optimizer

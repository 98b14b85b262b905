#pragma once

#include <cstddef>
#include <span>
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

/// Fills the state objects of parameters that have one with copies of what `block` holds, on the parameter's device.
void copy_out_of_block(const StateFields& fields, torch::optim::Optimizer& optimizer, std::span<ParameterSlot> slots,
                       std::span<std::byte> block);

/// Leaves the tensors that live in blocks undefined.
void clear_fields(const StateFields& fields, torch::optim::Optimizer& optimizer,
                  std::span<const ParameterSlot> slots) noexcept;

}  // namespace spillway::optimizer

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <spillway/optimizer/state_fields.hpp>

// State of a part of a parameter: optimizers keep it for the parameter as a whole, ranks for what they own of it.
namespace spillway::optimizer {

/// The state of elements [begin, end) of `parameter`, in the order of its memory: a copy of the state object whose
/// tensors are copies of the part. @param name  of the parameter, for messages.
/// @throws Error where a tensor is not of the parameter's size.
[[nodiscard]] std::unique_ptr<torch::optim::OptimizerParamState> split_state(
    const StateFields& fields, const torch::optim::OptimizerParamState& whole, const at::Tensor& parameter,
    const std::string& name, std::uint64_t begin, std::uint64_t end);

/// Undoes split_state() piece by piece: `whole` is null at first, and becomes a copy of the state object whose tensors
/// are of the parameter's size and strides. The pieces together have all elements.
void join_state(const StateFields& fields, std::unique_ptr<torch::optim::OptimizerParamState>& whole,
                torch::optim::OptimizerParamState& piece, const at::Tensor& parameter, std::uint64_t begin);

/// A part of what copy_of_codes() gives for a parameter. Undefined where `codes` is not that for `numel` elements.
/// @param begin  a multiple of 256.
[[nodiscard]] at::Tensor split_codes(const at::Tensor& codes, std::uint64_t numel, std::uint64_t begin,
                                     std::uint64_t end);
/// Undoes it piece by piece. @param whole  undefined at first.
void join_codes(at::Tensor& whole, std::uint64_t numel, const at::Tensor& piece, std::uint64_t begin,
                std::uint64_t end);

}  // namespace spillway::optimizer

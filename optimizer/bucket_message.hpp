#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/optimizer/parameter_list.hpp>
#include <spillway/optimizer/shard_plan.hpp>

// How tensors of a bucket lie in the bytes that travel between ranks: behind a head, each from a multiple of 16 bytes
// on, in its parameter's type, in the order of its memory.
namespace spillway::optimizer {

/// Rounded up to where the next tensor begins.
[[nodiscard]] std::uint64_t message_align(std::uint64_t bytes) noexcept;
/// What a parameter, or a gradient of it, takes up in a message.
[[nodiscard]] std::uint64_t message_bytes(const ListedParameter& parameter);
/// A message whose head is zeros. @returns uint8 [bytes] on the CPU.
[[nodiscard]] at::Tensor new_message(std::uint64_t bytes, std::uint64_t head_bytes);
/// The tensor that begins at `offset`: a view of the message, shaped like the parameter.
[[nodiscard]] at::Tensor place_in_message(const ListedParameter& parameter, const at::Tensor& message,
                                          std::uint64_t offset);
/// The parameters of a bucket that a rank owns, in their order.
[[nodiscard]] std::vector<std::size_t> owned_parameters(const ShardPlan& plan, std::size_t bucket, int rank);

}  // namespace spillway::optimizer

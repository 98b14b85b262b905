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
/// Whether a piece is not all of its parameter. Such a piece travels, and is kept, as a row: [piece.numel()].
[[nodiscard]] bool is_part(const ShardPiece& piece, const ListedParameter& parameter);
/// What a piece of a parameter, or of a gradient of it, takes up in a message.
[[nodiscard]] std::uint64_t message_bytes(const ListedParameter& parameter, const ShardPiece& piece);
/// A message whose head is zeros. @returns uint8 [bytes] on the CPU.
[[nodiscard]] at::Tensor new_message(std::uint64_t bytes, std::uint64_t head_bytes);
/// The tensor that begins at `offset`: a view of the message, shaped like the parameter, or a row for a part of one.
[[nodiscard]] at::Tensor place_in_message(const ListedParameter& parameter, const ShardPiece& piece,
                                          const at::Tensor& message, std::uint64_t offset);
/// The pieces of a bucket that a rank owns, in their order.
[[nodiscard]] std::vector<ShardPiece> owned_pieces(const ShardPlan& plan, std::size_t bucket, int rank);

}  // namespace spillway::optimizer

#include <spillway/optimizer/bucket_message.hpp>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

namespace spillway::optimizer {

std::uint64_t message_align(std::uint64_t bytes) noexcept { return (bytes + 15) / 16 * 16; }

bool is_part(const ShardPiece& piece, const ListedParameter& parameter) {
  return piece.numel() != static_cast<std::uint64_t>(parameter.tensor.numel());
}

std::uint64_t message_bytes(const ListedParameter& parameter, const ShardPiece& piece) {
  return message_align(piece.numel() * parameter.tensor.element_size());
}

at::Tensor new_message(std::uint64_t bytes, std::uint64_t head_bytes) {
  at::Tensor message = at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
  message.narrow(0, 0, static_cast<std::int64_t>(head_bytes)).zero_();
  return message;
}

at::Tensor place_in_message(const ListedParameter& parameter, const ShardPiece& piece, const at::Tensor& message,
                            std::uint64_t offset) {
  auto* const bytes = static_cast<unsigned char*>(message.data_ptr()) + offset;
  const at::TensorOptions options = at::device(at::kCPU).dtype(parameter.tensor.scalar_type());
  return is_part(piece, parameter) ? at::from_blob(bytes, {static_cast<std::int64_t>(piece.numel())}, options)
                                   : at::from_blob(bytes, parameter.sizes, parameter.gradient_strides, options);
}

std::vector<ShardPiece> owned_pieces(const ShardPlan& plan, std::size_t bucket, int rank) {
  std::vector<ShardPiece> owned;
  for (const ShardPiece& piece : plan.buckets()[bucket].pieces) {
    if (piece.owner == rank) {
      owned.push_back(piece);
    }
  }
  return owned;
}

}  // namespace spillway::optimizer

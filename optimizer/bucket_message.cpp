#include <spillway/optimizer/bucket_message.hpp>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

namespace spillway::optimizer {

std::uint64_t message_align(std::uint64_t bytes) noexcept { return (bytes + 15) / 16 * 16; }

std::uint64_t message_bytes(const ListedParameter& parameter) { return message_align(parameter.tensor.nbytes()); }

at::Tensor new_message(std::uint64_t bytes, std::uint64_t head_bytes) {
  at::Tensor message = at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
  message.narrow(0, 0, static_cast<std::int64_t>(head_bytes)).zero_();
  return message;
}

at::Tensor place_in_message(const ListedParameter& parameter, const at::Tensor& message, std::uint64_t offset) {
  auto* const bytes = static_cast<unsigned char*>(message.data_ptr());
  return at::from_blob(bytes + offset, parameter.sizes, parameter.gradient_strides,
                       at::device(at::kCPU).dtype(parameter.tensor.scalar_type()));
}

std::vector<std::size_t> owned_parameters(const ShardPlan& plan, std::size_t bucket, int rank) {
  std::vector<std::size_t> owned;
  for (const ShardPiece& piece : plan.buckets()[bucket].pieces) {
    if (piece.owner == rank) {
      owned.push_back(piece.parameter);
    }
  }
  return owned;
}

}  // namespace spillway::optimizer

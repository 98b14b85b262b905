#include <spillway/optimizer/tensor_piece.hpp>

#include <ATen/core/grad_mode.h>

#include <spillway/offload/check.hpp>
#include <spillway/optimizer/kernel_tensor.hpp>

namespace spillway::optimizer {

at::Tensor piece_view(const at::Tensor& tensor, std::uint64_t begin, std::uint64_t end) {
  SPILLWAY_CHECK(tensor.is_non_overlapping_and_dense() && end <= static_cast<std::uint64_t>(tensor.numel()),
                 "a piece is a range of memory without gaps");
  const at::NoGradGuard no_grad;
  const auto first = static_cast<std::int64_t>(begin);
  return tensor.detach().as_strided({static_cast<std::int64_t>(end) - first}, {1}, tensor.storage_offset() + first);
}

at::Tensor piece_in_order_of(const at::Tensor& like, const at::Tensor& tensor, std::uint64_t begin, std::uint64_t end) {
  return piece_view(in_order_of(like, tensor), begin, end);
}

}  // namespace spillway::optimizer

#include <spillway/optimizer/block_squares.hpp>

#include <algorithm>
#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include <spillway/offload/parallel.hpp>
#include <spillway/optimizer/gradient_kernel.hpp>
#include <spillway/optimizer/kernel_tensor.hpp>

namespace spillway::optimizer {
namespace {

// Blocks that no kernel knows: ATen works on so few elements with one thread.
void append_by_aten(const at::Tensor& flat, std::vector<double>& sums) {
  const auto block = static_cast<std::int64_t>(kSquaresBlockNumel);
  for (std::int64_t begin = 0; begin < flat.numel(); begin += block) {
    const at::Tensor part = flat.narrow(0, begin, std::min(block, flat.numel() - begin)).to(at::kDouble);
    sums.push_back(part.square().sum().item<double>());
  }
}

void append_by_kernel(const GradientRun& run, const offload::Parallel& parallel, std::vector<double>& sums) {
  const std::size_t before = sums.size();
  sums.resize(before + squares_blocks({&run, 1}));
  gradient_squares({&run, 1}, std::span(sums).subspan(before), parallel);
}

}  // namespace

at::Tensor in_memory_order(const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) {
    return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
  }
  return tensor.contiguous().view({-1});
}

void append_squares(const at::Tensor& gradient, const offload::Parallel& parallel, std::vector<double>& sums) {
  const at::Tensor flat = in_memory_order(gradient);
  const auto type = kernel_element_type(flat.scalar_type());
  if (type && flat.device().is_cpu()) {
    append_by_kernel({flat.const_data_ptr(), static_cast<std::uint64_t>(flat.numel()), *type}, parallel, sums);
  } else {
    append_by_aten(flat, sums);
  }
}

}  // namespace spillway::optimizer

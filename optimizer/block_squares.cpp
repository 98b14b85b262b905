#include <spillway/optimizer/block_squares.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/offload/parallel.hpp>
#include <spillway/optimizer/gradient_kernel.hpp>
#include <spillway/optimizer/kernel_tensor.hpp>

namespace spillway::optimizer {
namespace {

// Blocks that no kernel knows: ATen works on so few elements with one thread.
void append_by_aten(const at::Tensor& flat, std::span<const GradientTransform> transforms, std::vector<double>& sums) {
  const auto block = static_cast<std::int64_t>(kSquaresBlockNumel);
  for (std::int64_t begin = 0; begin < flat.numel(); begin += block) {
    at::Tensor part = flat.narrow(0, begin, std::min(block, flat.numel() - begin));
    if (!transforms.empty()) {
      part = part.clone();
      transform(transforms, part);
    }
    sums.push_back(part.to(at::kDouble).square().sum().item<double>());
  }
}

void append_by_kernel(std::span<const GradientRun> runs, const offload::Parallel& parallel, std::vector<double>& sums) {
  const std::size_t before = sums.size();
  sums.resize(before + squares_blocks(runs));
  gradient_squares(runs, std::span(sums).subspan(before), parallel);
}

// Block by block through a copy that stays in the cache.
void append_transformed(const at::Tensor& flat, std::span<const GradientTransform> transforms,
                        const offload::Parallel& parallel, std::vector<double>& sums) {
  const GradientRun whole{nullptr, static_cast<std::uint64_t>(flat.numel())};
  const std::size_t before = sums.size();
  sums.resize(before + squares_blocks({&whole, 1}));
  const auto of_blocks = std::span(sums).subspan(before);
  parallel.for_ranges(whole.numel, kSquaresBlockNumel, [&](offload::Range range) {
    std::vector<float> block(range.size());
    copy_as_floats(flat, range.begin, block);
    transform(transforms, block);
    const GradientRun run{block.data(), block.size()};
    gradient_squares({&run, 1}, of_blocks.subspan(range.begin / kSquaresBlockNumel, 1), parallel);
  });
}

std::optional<GradientRun> kernel_run(const at::Tensor& flat) {
  const auto type = kernel_element_type(flat.scalar_type());
  if (!type || !flat.device().is_cpu()) {
    return std::nullopt;
  }
  return GradientRun{flat.const_data_ptr(), static_cast<std::uint64_t>(flat.numel()), *type};
}

}  // namespace

at::Tensor in_memory_order(const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) {
    return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
  }
  return tensor.contiguous().view({-1});
}

void append_squares(const at::Tensor& gradient, const offload::Parallel& parallel, std::vector<double>& sums,
                    std::span<const GradientTransform> transforms) {
  const at::Tensor flat = in_memory_order(gradient);
  const std::optional<GradientRun> run = kernel_run(flat);
  if (run && transforms.empty()) {
    append_by_kernel({&*run, 1}, parallel, sums);
  } else if (run) {
    append_transformed(flat, transforms, parallel, sums);
  } else {
    append_by_aten(flat, transforms, sums);
  }
}

void append_squares(std::span<const at::Tensor> gradients, const offload::Parallel& parallel,
                    std::vector<double>& sums) {
  std::vector<at::Tensor> flat;  // Some are copies, which live until their run has been measured.
  std::vector<GradientRun> runs;
  const auto measure = [&] {
    append_by_kernel(runs, parallel, sums);
    runs.clear();
    flat.clear();
  };
  for (const at::Tensor& gradient : gradients) {
    flat.push_back(in_memory_order(gradient));
    if (const std::optional<GradientRun> run = kernel_run(flat.back())) {
      runs.push_back(*run);
    } else {
      const at::Tensor other = flat.back();
      measure();
      append_by_aten(other, {}, sums);
    }
  }
  measure();
}

}  // namespace spillway::optimizer

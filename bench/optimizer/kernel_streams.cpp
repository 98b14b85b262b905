#include "kernel_streams.hpp"

#include <algorithm>
#include <span>

#include <spillway/optimizer/state_codec.hpp>

namespace spillway::bench {

using offload::AlignedBlock;
using offload::Range;
using optimizer::ElementType;

namespace {

void fill(ElementType type, const AlignedBlock& block, std::uint64_t numel, float base,
          const offload::Parallel& parallel) {
  std::vector<float> values(type == ElementType::kFloat32 ? 0 : numel);
  float* to = values.empty() ? reinterpret_cast<float*>(block.bytes().data()) : values.data();
  parallel.for_ranges(numel, 1 << 16, [&](Range range) {
    for (std::uint64_t i = range.begin; i < range.end; ++i) {
      to[i] = base * (0.5F + static_cast<float>(i % 1021) / 1021.0F);
    }
  });
  if (!values.empty()) {
    optimizer::encode_bfloat16(values, {reinterpret_cast<std::uint16_t*>(block.bytes().data()), numel}, parallel);
  }
}

void* part(const AlignedBlock& block, std::uint64_t index, std::uint64_t parts) {
  return block.bytes().empty() ? nullptr : block.bytes().data() + block.bytes().size() / parts * index;
}

void bump(const AlignedBlock& block, Range share, std::uint64_t numel, std::uint64_t sum) {
  const std::uint64_t words_per_share = block.bytes().size() / 8 * share.size() / numel;
  auto* words = reinterpret_cast<std::uint64_t*>(block.bytes().data()) + block.bytes().size() / 8 * share.begin / numel;
  for (std::uint64_t i = 0; i < words_per_share; ++i) {
    words[i] += sum;
  }
}

}  // namespace

AdamMemory::AdamMemory(optimizer::KernelTypes with_types, std::uint64_t with_numel, const offload::Parallel& parallel)
    : types(with_types),
      numel(with_numel),
      gradient(numel * bytes_of(types.gradient)),
      weight(numel * weight_bytes_of(types.weight)),
      master(master_bytes_of(types.weight) == 0 ? AlignedBlock() : AlignedBlock(numel * master_bytes_of(types.weight))),
      exp_avg(numel * bytes_of(types.state)),
      exp_avg_sq(numel * bytes_of(types.state)) {
  fill(types.gradient, gradient, numel, 1e-3F, parallel);
  fill(weight_bytes_of(types.weight) == 4 ? ElementType::kFloat32 : ElementType::kBFloat16, weight, numel, 1e-1F,
       parallel);
  if (master_bytes_of(types.weight) == 4) {
    fill(ElementType::kFloat32, master, numel, 1e-1F, parallel);
  }
  fill(types.state, exp_avg, numel, 1e-3F, parallel);
  fill(types.state, exp_avg_sq, numel, 1e-6F, parallel);
}

std::vector<optimizer::AdamTensor> AdamMemory::parts(std::uint64_t tensors, const optimizer::AdamStep& step) const {
  std::vector<optimizer::AdamTensor> result;
  for (std::uint64_t t = 0; t < tensors; ++t) {
    result.push_back({.numel = numel / tensors,
                      .gradient = part(gradient, t, tensors),
                      .weight = part(weight, t, tensors),
                      .master = part(master, t, tensors),
                      .exp_avg = part(exp_avg, t, tensors),
                      .exp_avg_sq = part(exp_avg_sq, t, tensors),
                      .step = &step});
  }
  return result;
}

std::uint64_t AdamMemory::traffic_bytes() const {
  return gradient.bytes().size() +
         2 * (weight.bytes().size() + master.bytes().size() + exp_avg.bytes().size() + exp_avg_sq.bytes().size());
}

void touch_streams(const AdamMemory& memory, const offload::Parallel& parallel) {
  constexpr std::uint64_t kTile = 512;
  parallel.for_ranges(memory.numel, 1 << 16, [&](Range range) {
    for (std::uint64_t begin = range.begin; begin < range.end; begin += kTile) {
      const Range tile{begin, std::min(begin + kTile, range.end)};
      const std::uint64_t gradient_words = memory.gradient.bytes().size() / 8;
      const auto* words = reinterpret_cast<const std::uint64_t*>(memory.gradient.bytes().data());
      std::uint64_t sum = 0;
      for (std::uint64_t i = gradient_words * tile.begin / memory.numel; i < gradient_words * tile.end / memory.numel;
           ++i) {
        sum |= words[i];
      }
      sum = sum == 1 ? 1 : 0;  // Nearly always 0: values stay as they are.
      for (const AlignedBlock* block : {&memory.weight, &memory.master, &memory.exp_avg, &memory.exp_avg_sq}) {
        bump(*block, tile, memory.numel, sum);
      }
    }
  });
}

}  // namespace spillway::bench

#include <spillway/optimizer/coded_adam_kernel.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

#include <spillway/offload/check.hpp>
#include <spillway/optimizer/kernel_pieces.hpp>

namespace spillway::optimizer {
namespace {

constexpr std::uint64_t kTileNumel = 2048;  // Three fields of it fit into the first cache.

using Tile = std::array<float, kTileNumel>;

void* advance(void* memory, std::uint64_t bytes) {
  return memory == nullptr ? nullptr : static_cast<std::byte*>(memory) + bytes;
}

std::span<std::uint8_t> codes_of(const CodedField& field, offload::Range range) {
  return {field.codes + range.begin, range.size()};
}

std::span<float> scales_of(const CodedField& field, offload::Range range) {
  return {field.scales + range.begin / kDynamicBlockNumel, dynamic_blocks(range.size())};
}

// Everything here is one range for `parallel`, which runs it on the calling thread.
void update_tile(const CodedAdamTensor& coded, offload::Range range, const KernelTypes& types,
                 const GradientScale& scale, const offload::Parallel& parallel) {
  struct Field {
    const CodedField& coded;
    DynamicMap map;
    Tile values;
  };
  Field fields[] = {{coded.exp_avg, DynamicMap::kSigned, {}},
                    {coded.exp_avg_sq, DynamicMap::kUnsigned, {}},
                    {coded.max_exp_avg_sq, DynamicMap::kUnsigned, {}}};
  AdamTensor tensor = coded.tensor;
  tensor.numel = range.size();
  tensor.gradient = static_cast<const std::byte*>(tensor.gradient) + range.begin * bytes_of(types.gradient);
  tensor.weight = advance(tensor.weight, range.begin * weight_bytes_of(types.weight));
  tensor.master = advance(tensor.master, range.begin * master_bytes_of(types.weight));
  void** const memory[] = {&tensor.exp_avg, &tensor.exp_avg_sq, &tensor.max_exp_avg_sq};
  for (std::size_t f = 0; f < 3; ++f) {
    Field& field = fields[f];
    if (field.coded.codes != nullptr) {
      decode_dynamic(codes_of(field.coded, range), scales_of(field.coded, range), field.map,
                     std::span(field.values).first(range.size()), parallel);
      *memory[f] = field.values.data();
    }
  }
  adam_update({&tensor, 1}, {types.gradient, types.weight, ElementType::kFloat32}, scale, parallel);
  for (Field& field : fields) {
    if (field.coded.codes != nullptr) {
      encode_dynamic(std::span(field.values).first(range.size()), field.map, codes_of(field.coded, range),
                     scales_of(field.coded, range), parallel);
    }
  }
}

}  // namespace

void coded_adam_update(std::span<const CodedAdamTensor> tensors, const KernelTypes& types, const GradientScale& scale,
                       const offload::Parallel& parallel) {
  KernelPieces pieces(tensors.size());
  for (const CodedAdamTensor& coded : tensors) {
    SPILLWAY_CHECK(coded.tensor.numel == 0 || (coded.exp_avg.codes != nullptr && coded.exp_avg_sq.codes != nullptr),
                   "a tensor without state");
    pieces.add(coded.tensor.numel);
  }
  pieces.run(parallel, kDynamicBlockNumel, [&](std::size_t t, offload::Range range) {
    for (std::uint64_t begin = range.begin; begin < range.end; begin += kTileNumel) {
      update_tile(tensors[t], {begin, std::min(begin + kTileNumel, range.end)}, types, scale, parallel);
    }
  });
}

}  // namespace spillway::optimizer

#include <spillway/optimizer/unscale_kernel.hpp>

#include <algorithm>
#include <string>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <spillway/offload/error.hpp>

namespace spillway::optimizer {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocksPerTensor = 512;   // Enough to fill a large device; the loop strides over the rest.
constexpr unsigned kTensorsPerLaunch = 128;  // 2 KiB of the 4 KiB that a launch passes to every architecture.

struct Batch {
  void* data[kTensorsPerLaunch];
  std::uint64_t numel[kTensorsPerLaunch];
};

__device__ float widen(float value) { return value; }
__device__ float widen(__half value) { return __half2float(value); }
__device__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ void narrow(float value, float& to) { to = value; }
__device__ void narrow(float value, __half& to) { to = __float2half_rn(value); }
__device__ void narrow(float value, __nv_bfloat16& to) { to = __float2bfloat16_rn(value); }

// Row y of the grid works on tensor y of the batch.
template <typename Element>
__global__ void unscale(Batch batch, float inverse_scale, float* found_inf) {
  auto* elements = static_cast<Element*>(batch.data[blockIdx.y]);
  const std::uint64_t numel = batch.numel[blockIdx.y];
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  bool found = false;
  for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < numel; i += stride) {
    const float value = widen(elements[i]);
    found |= !isfinite(value);
    narrow(value * inverse_scale, elements[i]);
  }
  // One store a block at most, and an atomic one: blocks that find something at once must not race.
  if (__syncthreads_or(found) != 0 && threadIdx.x == 0) {
    atomicExch(found_inf, 1.0F);
  }
}

template <typename Element>
void launch(const std::vector<GradientSpan>& gradients, GradientType type, float inverse_scale, float* found_inf,
            cudaStream_t stream) {
  auto next = gradients.begin();
  while (next != gradients.end()) {
    Batch batch{};
    unsigned count = 0;
    std::uint64_t largest = 0;
    for (; next != gradients.end() && count < kTensorsPerLaunch; ++next) {
      if (next->type == type && next->numel > 0) {
        batch.data[count] = next->data;
        batch.numel[count++] = next->numel;
        largest = std::max(largest, next->numel);
      }
    }
    if (count == 0) {
      return;
    }
    const std::uint64_t blocks = std::min<std::uint64_t>((largest + kThreads - 1) / kThreads, kBlocksPerTensor);
    unscale<Element>
        <<<dim3(static_cast<unsigned>(blocks), count), kThreads, 0, stream>>>(batch, inverse_scale, found_inf);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) {
      throw Error("the CUDA kernel that unscales gradients was refused: " + std::string(cudaGetErrorString(status)));
    }
  }
}

}  // namespace

void unscale_and_check_async(const std::vector<GradientSpan>& gradients, float inverse_scale, float* found_inf,
                             CUstream_st* stream) {
  launch<float>(gradients, GradientType::kFloat32, inverse_scale, found_inf, stream);
  launch<__half>(gradients, GradientType::kFloat16, inverse_scale, found_inf, stream);
  launch<__nv_bfloat16>(gradients, GradientType::kBFloat16, inverse_scale, found_inf, stream);
}

}  // namespace spillway::optimizer

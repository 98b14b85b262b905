#pragma once

#include <vector>

#include <spillway/optimizer/unscale.hpp>

struct CUstream_st;  // What a cudaStream_t points to.

namespace spillway::optimizer {

/// unscale_and_check on the current CUDA device: queues the work on `stream` and returns at once.
/// @param gradients in device memory; their memory must stay until the stream has passed.
/// @param found_inf one float in device memory: set to 1 where an element is infinite or NaN, else left alone (start
/// with 0), so that several calls can share it.
/// @throws Error if the launch is refused.
void unscale_and_check_async(const std::vector<GradientSpan>& gradients, float inverse_scale, float* found_inf,
                             CUstream_st* stream);

}  // namespace spillway::optimizer

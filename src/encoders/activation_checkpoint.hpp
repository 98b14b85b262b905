#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spillway::app {

/// Which time a part of a network runs over one input. What a part does beside its output, such as moving running
/// statistics, it does the first time alone.
enum class Pass : std::uint8_t { kFirst, kAgain };

/// A part of a network, from its input to a tensor of its own: neither the input nor a view of it. What it refers to
/// has to live until backward, in the mode (training or evaluation) of the first pass.
using Recomputable = std::function<at::Tensor(const at::Tensor& input, Pass pass)>;

/// part(input, Pass::kFirst) without keeping what backward needs: it keeps the input alone, and backward runs the part
/// again from there (Pass::kAgain). Costs one more forward pass and saves the activations between input and output.
///
/// Gradients have the bits of a plain backward: they reach `parameters` through the graph around, so that hooks fire
/// as often as without it. (A part that uses a parameter several times has to do so through one view of it: then the
/// sum over the uses is made first, with and without checkpointing.) The second pass draws the random numbers of the
/// first from LibTorch's default generators of the CPU and of the input's device, which are then put back, and runs
/// under the autocast of the first; casts are not cached inside the part, as those of a pass without a graph would be
/// taken by one with it. Without grad mode or without anything that requires a gradient the part just runs.
/// @param parameters  All that the part uses and that gets a gradient. Changed in place before backward, they are
///                    found by autograd, which throws.
/// @throws Error in backward with create_graph: there is no second derivative. Not thread-safe beyond what `part` is.
/// Source: Chen et al. 2016, "Training deep nets with sublinear memory cost".
[[nodiscard]] at::Tensor checkpointed(const Recomputable& part, const at::Tensor& input,
                                      const std::vector<at::Tensor>& parameters);

}  // namespace spillway::app

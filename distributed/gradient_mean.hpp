#pragma once

#include <span>

namespace at {
class Tensor;
}

namespace spillway::distributed {

class Collective;

/// Replaces the gradient of each parameter, on every rank, by its mean over the ranks: with the gradients g0, g1, … of
/// the ranks, (((g0 + g1) + …) / ranks, the bits that one rank gets which accumulates them in this order and divides.
///
/// A parameter that has a gradient on some ranks counts as zero on the others, and has one on all afterwards; one
/// without a gradient on every rank keeps none, so that optimizers skip it. Gradients are changed in place and keep
/// their strides. They travel in buckets of one dtype; temporary memory is about three buckets of up to 32 MiB, or
/// thrice the largest gradient.
///
/// @param parameters  the same, in the same order, on every rank. Gradients are dense and of their parameter's dtype.
/// Blocks; call it between backward and step, from one thread.
/// @throws Error naming the parameter whose gradient is sparse, or where the ranks' parameters differ; else as
/// Collective.
void average_gradients(std::span<const at::Tensor> parameters, Collective& collective);

}  // namespace spillway::distributed

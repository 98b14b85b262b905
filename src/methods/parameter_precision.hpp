#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/app/encoders/encoder.hpp>

namespace spillway::app {

/// Gives parameters the type that the run keeps them in: `fp16` and `bf16` those of 16 bits, rounded to nearest, but
/// for layers that encoder.float32_layers names by a part of one of their parameters' names; else they stay float32.
/// The tensors stay the ones that their network has.
void set_precision(const std::vector<NamedTensor>& parameters, const Config& config);

/// The encoder with its head that the configuration describes, its parameters of the run's types. Draws the weights
/// from LibTorch's default generator, equal ones for every type up to their rounding.
[[nodiscard]] ProjectedEncoder make_network(const Config& config, ImageGeometry geometry);

}  // namespace spillway::app

#pragma once

#include <string>
#include <vector>

#include <spillway/app/encoders/encoder.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>

namespace spillway::app {

/// The first tensor of a step that is infinite or NaN somewhere.
struct NonFinite {
  std::string text;       ///< "the value of encoder.conv1.weight", "the gradient of …".
  bool is_value = false;  ///< Of a parameter: no step with other gradients mends it.
};

/// Looks through the values of the parameters in their order, then through their gradients, after these were clipped.
/// Reads gradients that lie on disk once.
[[nodiscard]] NonFinite find_non_finite(const std::vector<NamedTensor>& parameters, optimizer::Optimizer& optimizer);

}  // namespace spillway::app

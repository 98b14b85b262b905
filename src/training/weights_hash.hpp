#pragma once

#include <string>
#include <vector>

#include <spillway/app/encoders/encoder.hpp>

namespace spillway::app {

/// XXH3-64 over tensors in the order of their names, each one's elements in logical order; equal hashes mean equal
/// bits. Sixteen hexadecimal digits.
[[nodiscard]] std::string weights_xxh3(std::vector<NamedTensor> parameters);

}  // namespace spillway::app

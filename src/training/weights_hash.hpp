#pragma once

#include <string>
#include <vector>

#include <spillway/app/encoders/encoder.hpp>
#include <spillway/app/training/run_ranks.hpp>

namespace spillway::app {

/// XXH3-64 over tensors in the order of their names, each one's elements in logical order; equal hashes mean equal
/// bits. Sixteen hexadecimal digits.
[[nodiscard]] std::string weights_xxh3(std::vector<NamedTensor> parameters);

/// The same over the weights of a run, which all ranks have alike. @throws Error on all of them where they have not.
[[nodiscard]] std::string agreed_weights(std::vector<NamedTensor> parameters, RunRanks& ranks);

}  // namespace spillway::app

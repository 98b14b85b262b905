#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <support/golden.hpp>

namespace spillway::test {

/// A copy of a golden tensor, in the dtype and shape that it is stored in, on the CPU.
/// @throws std::out_of_range (no such tensor), std::runtime_error (a dtype that is not known here).
[[nodiscard]] at::Tensor tensor(const GoldenFile& file, const std::string& name);

/// A golden scalar as a double. @throws as above.
[[nodiscard]] double scalar(const GoldenFile& file, const std::string& name);

}  // namespace spillway::test

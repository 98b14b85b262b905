#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace spillway::app {

/// Features of a set with the class of each row.
struct LabelledFeatures {
  at::Tensor features;  ///< [N, D], floating point, on the CPU.
  at::Tensor labels;    ///< [N] int64, 0 … classes - 1.
};

/// @param what  Is measured: the beginning of the message.
/// @throws Error if the two sets have different widths, or a set is empty.
void check_sets(const LabelledFeatures& train, const LabelledFeatures& test, std::string_view what);

/// Runs `encode` over `images` in slices of `batch` rows without recording gradients.
/// @param images  [N, ...]. @param encode  [n, ...] to [n, D]; the caller has put the module in evaluation mode.
/// @return [N, D].
[[nodiscard]] at::Tensor encode_all(const at::Tensor& images,
                                    const std::function<at::Tensor(const at::Tensor&)>& encode,
                                    std::int64_t batch = 500);

}  // namespace spillway::app

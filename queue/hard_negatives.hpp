#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace spillway::queue {

class NegativeBank;

/// The rows of a bank that are most like each query.
struct HardNegatives {
  at::Tensor similarities;  ///< [N, k]: dot products with the query, largest first; -inf where there was no row left.
  at::Tensor indices;  ///< [N, k] int64: which of the valid rows, counted from the oldest; -1 where there was none.
};

/// The `count` rows with the largest dot product for each query, or all where the bank has fewer, in one scan. Their
/// values are to be had from NegativeBank::rows. Which of several equal ones is taken depends on nothing but the rows
/// and their order. Not differentiable.
/// @param q             [N, D], floating point, on the CPU; computed in float32, in float64 for float64 queries.
/// @param query_labels  [N] int64: rows of the bank with a query's own label are left out. Undefined: none are.
/// @throws ConfigError (shapes; count below 1; labels and a bank without), and what NegativeBank::scan throws.
[[nodiscard]] HardNegatives hardest_negatives(const at::Tensor& q, NegativeBank& bank, std::int64_t count,
                                              const at::Tensor& query_labels = {});

}  // namespace spillway::queue

namespace spillway {
using queue::hardest_negatives;
using queue::HardNegatives;
}  // namespace spillway

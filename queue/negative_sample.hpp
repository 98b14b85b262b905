#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

namespace spillway::queue {

class NegativeBank;

struct SampleOptions {
  std::int64_t rows = 4'096;  ///< How many are drawn.
  bool replacement = false;   ///< Whether a row may be drawn more than once.
  std::uint64_t seed = 0;     ///< Another for each step.
};

/// `options.rows` of the numbers 0 to population - 1, each with the same chance, in ascending order: [rows] int64. The
/// draw depends on population and options alone. Source: Floyd's algorithm (Bentley 1987) where there is no
/// replacement.
/// @throws ConfigError where there are not as many without replacement, or nothing to draw from. `name` begins it.
[[nodiscard]] at::Tensor draw_rows(const std::string& name, std::int64_t population, const SampleOptions& options);

/// Some rows of a bank, to be negatives in the place of all of them.
struct SampledNegatives {
  at::Tensor rows;              ///< [M, dim] of the dtype that was asked for.
  at::Tensor labels;            ///< [M] int64; undefined where the bank has none.
  at::Tensor indices;           ///< [M] int64: which of the valid rows, counted from the oldest; ascending.
  std::int64_t population = 0;  ///< Valid rows when they were drawn.
};

/// Draws from the valid rows and fetches what was drawn: from disk in merged reads of whole pages, not of segments. The
/// draw is the same wherever the rows live. @param dtype  kFloat or kDouble.
/// @throws as draw_rows; IoError, Corruption.
[[nodiscard]] SampledNegatives sample_negatives(NegativeBank& bank, const SampleOptions& options,
                                                at::ScalarType dtype = at::kFloat);

}  // namespace spillway::queue

namespace spillway {
using queue::sample_negatives;
using queue::SampledNegatives;
using queue::SampleOptions;
}  // namespace spillway

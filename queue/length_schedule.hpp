#pragma once

#include <cstdint>

namespace spillway::queue {

/// How long a bank is at each step of the training. It starts short, because keys of an encoder that still changes fast
/// are soon those of another encoder, and grows to its length while the encoder settles. Give the bank
/// BankOptions::capacity_max = longest(), and call NegativeBank::resize(rows_at(step)) before each step.
struct LengthSchedule {
  enum class Growth : std::uint8_t {
    kLinear,     ///< By the same number of rows with each step.
    kGeometric,  ///< By the same factor.
  };
  std::int64_t first = 65'536;  ///< Rows at step 0.
  std::int64_t last = 65'536;   ///< Rows from step `steps` on; may be less than `first`.
  std::int64_t steps = 0;       ///< 0: `last` from the start.
  Growth growth = Growth::kLinear;

  /// Rows at `step` (>= 0, counted in optimizer steps), between first and last, rounded.
  /// @throws ConfigError where a length is below 1, or `steps` or `step` below 0.
  [[nodiscard]] std::int64_t rows_at(std::int64_t step) const;
  [[nodiscard]] std::int64_t longest() const noexcept { return first > last ? first : last; }
};

}  // namespace spillway::queue

namespace spillway {
using queue::LengthSchedule;
}  // namespace spillway

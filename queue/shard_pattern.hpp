#pragma once

#include <cstdint>
#include <vector>

namespace spillway::queue {

/// Which rank holds which row of a bank that is sharded over ranks. Rows are numbered in the order in which they enter;
/// of every sum(weights) consecutive ones, rank 0 holds the first weights[0], rank 1 the next weights[1], and so on:
/// the parts of any window are as even as the weights say, whatever the sizes of the batches. A value type.
class ShardPattern {
 public:
  /// @param weights  One for each rank, >= 0, not all 0.
  explicit ShardPattern(std::vector<std::int64_t> weights);

  [[nodiscard]] int owner(std::int64_t number) const;
  /// How many of the rows [first, end) `rank` holds.
  [[nodiscard]] std::int64_t count(int rank, std::int64_t first, std::int64_t end) const {
    return before(rank, end) - before(rank, first);
  }
  /// Most of any `rows` consecutive ones that `rank` holds.
  [[nodiscard]] std::int64_t most(int rank, std::int64_t rows) const;
  [[nodiscard]] const std::vector<std::int64_t>& weights() const noexcept { return weights_; }

 private:
  [[nodiscard]] std::int64_t before(int rank, std::int64_t number) const;

  std::vector<std::int64_t> weights_;
  std::vector<std::int64_t> starts_;  // Where each rank's run begins; then the period.
};

}  // namespace spillway::queue

#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spillway::distributed {
class Collective;
}

namespace spillway::queue {

/// Rows of a batch that change places across the ranks and come back: MoCo's keys, so that batch-norm statistics, which
/// each rank takes over its own rows, do not tell which key belongs to which query. Each rank keeps its number of rows,
/// which may be another on each and 0. Rows travel once, from their rank to the one that gets them.
/// All ranks make the same calls in the same order. Not thread-safe. Source: He et al. 2020, sec. 3.3.
class RankShuffle {
 public:
  /// @param rows   Rows of this rank.
  /// @param order  [rows of all ranks] int64, a permutation on the CPU: place i of the shuffled batch gets row
  /// order[i],
  ///               both counted in rank order. That of rank 0 counts, so that the ranks can't disagree.
  /// @param ranks  Outlives this.
  /// @throws ConfigError, on all ranks, where rank 0's order is no permutation of all rows; else as Collective.
  RankShuffle(std::int64_t rows, const at::Tensor& order, distributed::Collective& ranks);

  /// This rank's part of the shuffled batch. @param rows  [rows, ...], any dtype, on the CPU; taken without its
  /// autograd history. @throws ConfigError for another number of rows, else as Collective.
  [[nodiscard]] at::Tensor shuffle(const at::Tensor& rows) const;
  /// Undoes it exactly: [rows, ...] at the shuffled places to the rows' own ones.
  [[nodiscard]] at::Tensor unshuffle(const at::Tensor& rows) const;

 private:
  [[nodiscard]] at::Tensor exchange(const at::Tensor& rows, const std::vector<at::Tensor>& outgoing,
                                    const std::vector<at::Tensor>& incoming) const;

  distributed::Collective& ranks_;
  std::int64_t rows_;
  std::vector<at::Tensor> given_;  // For each rank, which of this rank's rows it gets, in the order of their places.
  std::vector<at::Tensor> taken_;  // For each rank, at which of this rank's places the rows go that come from it.
};

}  // namespace spillway::queue

namespace spillway {
using queue::RankShuffle;
}  // namespace spillway

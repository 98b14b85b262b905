#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace spillway::distributed {
class Collective;
}

namespace spillway::queue {

struct GatheredRows {
  at::Tensor rows;         ///< [N over all ranks, ...]: rank 0's rows, then rank 1's, …
  std::int64_t first = 0;  ///< Where this rank's rows begin.
};

/// The rows of all ranks, of which each may have another number, also none. Gradients flow back: each rank gets the sum
/// over the ranks of what they found for its rows, added in rank order. Backward is a collective too: all ranks run it,
/// in the order in which they gathered, so that `rows` requires a gradient on all ranks or on none.
/// @param rows   [n, ...], any dtype, on the CPU.
/// @param ranks  Outlives the graph. Null: `rows` come back as they are.
/// @throws as Collective::all_gather, from backward as all_to_all. There is no second derivative.
[[nodiscard]] GatheredRows gather_rows(const at::Tensor& rows, distributed::Collective* ranks);

/// What the mean over this rank's rows is multiplied by, so that the mean over the ranks of the product (and of its
/// gradients: what average_gradients makes) is the mean over the rows of all ranks: ranks × rows / rows of all ranks;
/// 0 where there is no row at all.
/// @throws as Collective::all_gather.
[[nodiscard]] double rank_share(std::int64_t rows, distributed::Collective& ranks);

}  // namespace spillway::queue

namespace spillway {
using queue::gather_rows;
using queue::GatheredRows;
using queue::rank_share;
}  // namespace spillway

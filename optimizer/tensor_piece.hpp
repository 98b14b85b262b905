#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace spillway::optimizer {

/// The elements [begin, end) of a tensor that is dense in memory, in the order of its memory: a view [end - begin] that
/// wants no gradient and shares the tensor's version counter. What is done to it element by element is done to the
/// tensor.
[[nodiscard]] at::Tensor piece_view(const at::Tensor& tensor, std::uint64_t begin, std::uint64_t end);

/// The elements of `tensor` that stand where those of piece_view(like, begin, end) do: a view where both have the same
/// order in memory, else a copy. @param like  dense in memory, of the size of `tensor`; only looked at for its strides.
[[nodiscard]] at::Tensor piece_in_order_of(const at::Tensor& like, const at::Tensor& tensor, std::uint64_t begin,
                                           std::uint64_t end);

}  // namespace spillway::optimizer

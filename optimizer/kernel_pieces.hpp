#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <spillway/offload/parallel.hpp>

namespace spillway::optimizer {

/// Cuts a list of tensors into pieces of about the same work, so that many small tensors cost no more than one large.
class KernelPieces {
 public:
  /// @param tensors how many will follow.
  explicit KernelPieces(std::size_t tensors) { ends_.reserve(tensors); }
  /// Appends a tensor.
  void add(std::uint64_t numel) { ends_.push_back(numel_ + numel), numel_ += numel; }

  /// Runs body(index of the tensor, elements of it) over all elements of all tensors, several at once; blocks. Pieces
  /// begin at multiples of `align` within their tensor, wherever the number of threads is.
  /// @param align a divisor of 65,536.
  void run(const offload::Parallel& parallel, std::uint64_t align,
           const std::function<void(std::size_t, offload::Range)>& body) const;

 private:
  std::vector<std::uint64_t> ends_;  // Of each tensor, counted through all.
  std::uint64_t numel_ = 0;
};

}  // namespace spillway::optimizer

#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace spillway::queue {

/// One int64 label for each row of a bank, in host memory wherever the rows live: 8 bytes a row. Rows are known by
/// their number, counted from the first that ever entered; the newest `places` of them have a label here. Not
/// thread-safe.
class LabelRing {
 public:
  /// @param places  >= 0. Takes 8 bytes for each; the caller has reserved them.
  explicit LabelRing(std::int64_t places);

  /// Labels of the rows `number`, `number` + 1, …: [n] int64 on the CPU, n at most `places`.
  void write(std::int64_t number, const at::Tensor& labels);
  /// Fills `out` ([n] int64 on the CPU, contiguous) with the labels of the rows `number`, `number` + 1, …
  void read(std::int64_t number, at::Tensor& out) const;
  /// Labels of the rows with these numbers ([n] int64), in their order.
  [[nodiscard]] at::Tensor at_numbers(const at::Tensor& numbers) const;

 private:
  at::Tensor labels_;
};

}  // namespace spillway::queue

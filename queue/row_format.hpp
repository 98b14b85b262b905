#pragma once

#include <cstddef>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace spillway::queue {

/// Rows as a bank keeps them: rounded, each in its place.
struct StoredRows {
  at::Tensor values;  ///< [n, dim] of the bank's dtype: floating-point values, or int8 codes.
  at::Tensor scales;  ///< [n] float32: a row's value is code times scale. Undefined where values are floating-point.
  at::Tensor labels;  ///< [n] int64; undefined in a bank without labels.

  [[nodiscard]] std::int64_t size() const { return values.size(0); }
  /// `count` rows from `first` on, as views.
  [[nodiscard]] StoredRows narrow(std::int64_t first, std::int64_t count) const;
  /// The rows with these indices ([m] int64), as copies.
  [[nodiscard]] StoredRows select(const at::Tensor& indices) const;
  /// Rows of their own memory, contiguous.
  [[nodiscard]] StoredRows clone() const;
};

/// How rows of a bank lie in memory and on disk: one after another, a row of int8 codes behind its float32 scale and
/// padded to 4 bytes. A row is complete in itself, so that it can be read alone.
class RowFormat {
 public:
  /// @param dtype  kHalf, kBFloat16, kFloat, kDouble, or kChar: 8 bits with a scale that maps the row's largest
  ///               magnitude to 127.
  RowFormat(at::ScalarType dtype, std::int64_t dim);

  [[nodiscard]] std::uint64_t row_bytes() const noexcept { return row_bytes_; }
  /// `keys` ([n, dim], any floating-point dtype) rounded to what is stored. A row that can't be (NaN, or out of range)
  /// is not finite then, in values or scale.
  [[nodiscard]] StoredRows round(const at::Tensor& keys) const;
  /// [n] bool: which rows have only finite values.
  [[nodiscard]] static at::Tensor finite(const StoredRows& rows);
  /// `count` rows that lie at `memory` (aligned to an element), as views; without labels.
  [[nodiscard]] StoredRows view(std::byte* memory, std::int64_t count) const;
  /// Writes values and scales of `from` over those of `to`.
  static void copy(const StoredRows& from, const StoredRows& to);
  /// Values in the dtype of `out` ([n, dim], kFloat or kDouble).
  static void decode(const StoredRows& rows, at::Tensor& out);

 private:
  at::ScalarType dtype_;
  std::int64_t dim_;
  std::uint64_t row_bytes_;
};

}  // namespace spillway::queue

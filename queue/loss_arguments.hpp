#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

namespace spillway::queue {

class NegativeBank;

/// The dtype that a loss over rows of `dtype` is computed in: float64 for float64, float32 for all others.
[[nodiscard]] at::ScalarType compute_dtype(at::ScalarType dtype) noexcept;

/// What a matrix of rows has to be. A size of kAny fits all.
struct WantedRows {
  static constexpr std::int64_t kAny = -1;
  std::int64_t rows = kAny;
  std::int64_t dim = kAny;
  const char* why = "";  ///< Ends the message: where the sizes come from.
};

/// @throws ConfigError naming the loss, the argument, what it is and what is wanted, unless `tensor` is a matrix of
/// that size, of a floating-point dtype, on the CPU.
void check_rows(const char* loss, const char* name, const at::Tensor& tensor, const WantedRows& wanted);

/// @throws ConfigError as above, unless `labels` is [rows] int64 on the CPU.
void check_row_labels(const char* loss, const char* name, const at::Tensor& labels, std::int64_t rows);

/// @throws ConfigError unless the bank has labels.
void check_bank_labels(const char* loss, const NegativeBank& bank);

/// A tensor for messages: "[4, 24] float on cpu" or "undefined".
[[nodiscard]] std::string tensor_text(const at::Tensor& tensor);

}  // namespace spillway::queue

#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include <spillway/queue/bank_plan.hpp>
#include <spillway/queue/row_format.hpp>

namespace spillway::queue {

/// Keys on their way into a bank: what may enter, and what may not.
struct AdmittedKeys {
  StoredRows rows;                   ///< Rounded to what the bank stores; finite, in the order of the batch.
  std::int64_t rejected = 0;         ///< Rows of the batch that were not finite as stored.
  std::int64_t first_rejected = -1;  ///< The first of them; -1: none.
};

/// Checks keys and labels against what a bank of these options takes, rounds them, and leaves out rows that are not
/// finite as stored: a finite float32 beyond 65504 is infinite in float16.
/// @param keys    [n, dim], any floating-point dtype, on the CPU. @param labels  [n] int64, if the bank has labels.
/// @throws ConfigError naming wanted and got.
[[nodiscard]] AdmittedKeys admit_keys(const BankOptions& options, const at::Tensor& keys, const at::Tensor& labels);

/// Whether rows are as a bank of these options stores them. @throws ConfigError naming wanted and got.
void check_stored(const BankOptions& options, const StoredRows& rows);

/// The line to the user about rows that were left out of a batch of `batch_rows`.
[[nodiscard]] std::string rejection_warning(const BankOptions& options, const AdmittedKeys& keys,
                                            std::int64_t batch_rows);

}  // namespace spillway::queue

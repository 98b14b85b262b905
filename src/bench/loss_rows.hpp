#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/bench/bench_report.hpp>

namespace spillway::app {

/// One bank in memory.
struct LossCase {
  std::string name;  ///< Of its row; that of the memory is `name`_memory.
  std::int64_t keys = 0;
  std::int64_t dim = 0;
  at::ScalarType dtype = at::kFloat;  ///< Of the bank's rows. LibTorch has them in float32.
  double bound_bar = 0.0;             ///< 0: none.
  double peer_bar = 0.0;              ///< 0: none.
  bool has_memory = false;            ///< Whether the memory is measured, with its bar.
};

/// Its rows: time of loss and backward (two rows where it has two bars: the second is `name`_peer), and peak memory.
/// Rows for which there is too little memory say so. @throws Error where the sides compute different things.
[[nodiscard]] std::vector<BenchRow> loss_rows(const LossCase& about, unsigned rounds);
/// Their names.
[[nodiscard]] std::vector<std::string> loss_row_names(const LossCase& about);

}  // namespace spillway::app

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <spillway/app/bench/bench_report.hpp>

namespace spillway::app {

struct StreamedBankCase {
  std::string folder;       ///< On the disk.
  std::uint64_t bytes = 0;  ///< Of the bank: a multiple of StreamedBank::kBytesUnit.
  unsigned rounds = 0;
};

/// Names of rows of a bank on disk, two for each number of queries: its rate, and the share of its time that waits.
[[nodiscard]] std::vector<std::string> streamed_bank_row_names();

/// Measures those that `wanted` names, and hands the rows of each number of queries to `keep` at once. Rows for which
/// there is too little memory or space say so.
/// @throws IoError for the folder; Error where the loss is another than it must be.
void measure_streamed_bank(const StreamedBankCase& about, const std::function<bool(const std::string& name)>& wanted,
                           const std::function<void(std::vector<BenchRow> rows)>& keep);

}  // namespace spillway::app

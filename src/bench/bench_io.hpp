#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::app {

struct BenchIoOptions {
  std::string nvme_path = ".";                   ///< Folder on the disk that is measured.
  std::string json = {};                         ///< File for the results; empty: only the table.
  std::uint64_t bytes = std::uint64_t{2} << 30;  ///< Moved in each measurement; the disk needs three times that.
  unsigned rounds = 11;
  std::vector<std::string> rows = {};  ///< Those to measure; empty: all.
  std::string peers_folder = {};       ///< What `scripts/bootstrap peers` filled; empty: where it does by default.
};

/// `spillway bench io`: the storage engine and the block store beside a bare io_uring loop (the bound), fio and
/// DeepSpeed's async_io (the peers), by turns in the same run; docs/benchmarks.md says what each row is. Prints a table
/// on standard output and writes the JSON document. Takes minutes. Returns the exit status, 0: a bar that is missed is
/// a result.
/// @throws ConfigError for too few bytes, no round, or an unknown row; IoError or OutOfSpace for the folder and for the
/// JSON's.
int run_bench_io(const BenchIoOptions& options);

}  // namespace spillway::app

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::app {

struct BenchBankOptions {
  std::string nvme_path = ".";      ///< Folder on the disk that the streamed bank is on.
  std::string json = {};            ///< File for the results; empty: only the table.
  std::uint64_t capacity = 65'536;  ///< Keys of the bank in memory.
  std::uint64_t bytes =
      std::uint64_t{2} << 30;  ///< Of the streamed bank; host budget: an eighth; the disk needs twice.
  unsigned rounds = 11;
  std::vector<std::string> rows = {};  ///< Those to measure; empty: all.
};

/// `spillway bench bank`: InfoNCE and its gradient over a bank in memory, beside the usual way in LibTorch (the peer)
/// and the bare matrix products (the bound), with the peak memory of both; and over a bank on disk, beside a bare
/// io_uring loop or the same bank in memory; by turns in the same run. docs/benchmarks.md says what each row is. Prints
/// a table on standard output and writes the JSON document. Takes minutes. Returns the exit status, 0: a bar that is
/// missed is a result, and so is a row for which memory or disk does not suffice.
/// @throws ConfigError for sizes that tell nothing, no round, or an unknown row; IoError for the folder and for the
/// JSON's; Error where a side computes something else than the others.
int run_bench_bank(const BenchBankOptions& options);

}  // namespace spillway::app

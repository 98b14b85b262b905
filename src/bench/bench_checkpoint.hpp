#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::app {

struct BenchCheckpointOptions {
  std::string path = ".";                        ///< Folder on the disk that is measured.
  std::string json = {};                         ///< File for the results; empty: only the table.
  std::uint64_t bytes = std::uint64_t{1} << 30;  ///< Of the checkpoint; the disk needs three times that.
  unsigned rounds = 11;
  std::vector<std::string> rows = {};  ///< Those to measure; empty: all.
};

/// `spillway bench checkpoint`: a checkpoint saved from memory, until it is on the disk under its name, and verified
/// and loaded into memory from a disk whose pages are not cached, beside a bare io_uring loop over as many bytes; by
/// turns in the same run. docs/benchmarks.md says what each row is. Prints a table on standard output and writes the
/// JSON document. Returns the exit status, 0: a bar that is missed is a result.
/// @throws ConfigError for a size below 64 MiB, no round, or an unknown row; IoError for the folder and for the JSON's.
int run_bench_checkpoint(const BenchCheckpointOptions& options);

}  // namespace spillway::app

#pragma once

#include <cstdint>
#include <string>

namespace spillway::app {

struct BenchIoOptions {
  std::string nvme_path = ".";                   ///< Folder on the disk that is measured.
  std::string json = {};                         ///< File for the results; empty: only the table.
  std::uint64_t bytes = std::uint64_t{2} << 30;  ///< Moved in each measurement; the disk needs twice that.
  unsigned rounds = 11;
};

/// `spillway bench io`: reads, overwrites and first writes of the storage engine, as the block store uses it, beside a
/// bare io_uring loop (the bound) and fio (the peer), by turns in the same run. Prints a table on standard output and
/// writes the JSON document. Takes a few minutes. Returns the exit status, 0: a bar that is missed is a result.
/// @throws ConfigError for fewer than 64 MiB or no round; IoError or OutOfSpace for the folder and for the JSON's.
int run_bench_io(const BenchIoOptions& options);

}  // namespace spillway::app

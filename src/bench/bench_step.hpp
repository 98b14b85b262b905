#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <spillway/app/bench/deepspeed_peer.hpp>

namespace spillway::app {

struct BenchStepOptions {
  std::string nvme_path = ".";  ///< Folder on the disk that the state is on.
  std::string json = {};        ///< File for the results; empty: only the table.
  std::string peers_folder = default_peers_folder();
  std::uint64_t numel = std::uint64_t{200} << 20;  ///< Elements of the parameters.
  unsigned rounds = 11;
  std::vector<std::string> rows = {};  ///< Those to measure; empty: all.
};

/// `spillway bench step`: the step of a wrapped AdamW whose state is on the disk, under a host budget of a tenth of it,
/// beside the longer of what the machine needs for its two halves (the same bytes moved by a bare io_uring loop, and
/// the same update with the state in host memory) and beside a step of DeepSpeed's ZeRO-3; by turns in the same run.
/// docs/benchmarks.md says what each row is. Prints a table on standard output and writes the JSON document. Needs
/// about 28 bytes of memory and 20 of disk an element. Returns the exit status, 0: a bar that is missed is a result.
/// @throws ConfigError for too few elements, no round, or an unknown row; IoError for the folder and for the JSON's;
/// Error where placement changes a weight.
int run_bench_step(const BenchStepOptions& options);

}  // namespace spillway::app

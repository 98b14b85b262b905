#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <spillway/app/bench/deepspeed_peer.hpp>

namespace spillway::app {

struct BenchOptimizerOptions {
  std::string json = {};                           ///< File for the results; empty: only the table.
  std::uint64_t numel = std::uint64_t{128} << 20;  ///< Elements of the flat rows; the others have an eighth of it.
  unsigned rounds = 11;
  std::vector<std::string> rows = {};  ///< Those to measure; empty: all.
  std::string peers_folder = default_peers_folder();
};

/// `spillway bench optimizer`: the step of a wrapped AdamW with fused kernels, its state in host memory, beside a loop
/// over the same streams of memory (the bound), LibTorch's fused AdamW and DeepSpeed's CPUAdam, by turns in the same
/// run; the peer of a row is the quicker of the two. docs/benchmarks.md says what each row is. Prints a table on
/// standard output and writes the JSON document. Needs about 70 bytes an element. Returns the exit status, 0: a bar
/// that is missed is a result.
/// @throws ConfigError for too few elements, no round, or an unknown row; IoError for the JSON's folder; Error where a
/// side computes something else than the others.
int run_bench_optimizer(const BenchOptimizerOptions& options);

}  // namespace spillway::app

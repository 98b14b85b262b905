#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <spillway/app/bench/deepspeed_peer.hpp>

namespace spillway::app {

struct BenchDataOptions {
  std::string data =
      {};  ///< Folder of classes with image files; empty: files that are made for it, in a folder of their own.
  std::string json = {};  ///< File for the results; empty: only the table.
  std::string peers_folder = default_peers_folder();
  std::uint64_t images = 512;  ///< That are made, of 500 x 375 pixels.
  std::uint64_t batch = 64;
  std::uint64_t batches = 4;  ///< That are timed in a round.
  std::uint64_t workers = 2;
  unsigned rounds = 11;
  std::vector<std::string> rows = {};  ///< Those to measure; empty: all.
};

/// `spillway bench data`: how many images a second are read, decoded, and made into two views of 224 x 224 by SimCLR's
/// recipe, beside a torchvision DataLoader on the same files with as many workers, and beside the decoding alone on as
/// many threads; by turns in the same run. docs/benchmarks.md says what each row is. Prints a table on standard output
/// and writes the JSON document. Returns the exit status, 0: a bar that is missed is a result.
/// @throws ConfigError for no round, image, batch or worker, or an unknown row; IoError for the folder and for the
/// JSON's; FormatError for damaged files.
int run_bench_data(const BenchDataOptions& options);

}  // namespace spillway::app

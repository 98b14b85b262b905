#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <spillway/app/bench/bench_report.hpp>

namespace spillway::app {

/// The rows of `spillway bench io` that are about the block store: what overlap hides and what checksums cost. Each
/// function makes its stores anew, blocks while it measures, and throws Error where the bytes that come out are not the
/// right ones.
class StreamRows {
 public:
  struct Options {
    std::string folder;
    std::uint64_t bytes = 0;  ///< Of the working set; a multiple of 64 MiB.
    unsigned rounds = 0;
  };
  explicit StreamRows(Options options) : options_(std::move(options)) {}

  /// A pass over a working set of four times the host budget, all of it read, worked on by one thread, and written
  /// back; the work is as long as the transfers alone. Three rows: with overlap, less the time of one block at each
  /// end, the same without checksums, and block by block. Bound: the longer of transfers alone and work alone.
  [[nodiscard]] std::vector<BenchRow> overlap_rows() const;
  /// Passes without work, with checksums beside the same without.
  [[nodiscard]] BenchRow checksum_row(const std::string& name, bool write) const;

 private:
  const Options options_;
};

}  // namespace spillway::app

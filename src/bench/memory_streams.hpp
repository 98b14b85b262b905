#pragma once

#include <cstdint>
#include <vector>

#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/parallel.hpp>

namespace spillway::app {

/// The machine's own bound for work on several streams of memory at once: reads one and rewrites the others, on huge
/// pages, tile by tile through all of them, with next to no arithmetic.
class MemoryStreams {
 public:
  MemoryStreams(std::uint64_t read_bytes, const std::vector<std::uint64_t>& rewritten_bytes);
  /// Once through everything; blocks.
  void pass();

 private:
  offload::AlignedBlock read_;
  std::vector<offload::AlignedBlock> rewritten_;
  offload::Parallel parallel_;
};

}  // namespace spillway::app

#pragma once

#include <cstdint>
#include <string>

#include <spillway/app/bench/io_job.hpp>
#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/swap_file.hpp>

namespace spillway::app {

/// A file that was written once, for the bare io_uring loop to move: what the disk gives to anybody.
class BareLoop {
 public:
  /// Blocks until all of it is written. @param bytes  Rounded down to whole blocks. @throws IoError, OutOfSpace.
  BareLoop(const std::string& folder, std::uint64_t bytes, IoDirection direction);
  /// Bytes a second, over all of the file.
  double rate();

 private:
  offload::SwapFile file_;
  offload::AlignedBlock memory_;
  IoJob job_;
};

}  // namespace spillway::app

#pragma once

#include <cstdint>
#include <string>

namespace spillway::app {

struct FioOptions {
  int fd = -1;  ///< A file of this process, open; fio opens it anew, for direct I/O.
  bool write = false;
  std::uint64_t bytes = 0;
  std::uint64_t block_bytes = 1U << 20;
  unsigned depth = 32;
};

/// Why fio (the usual tool for such measurements) can't be run here; empty where it can.
[[nodiscard]] std::string fio_unavailable();

/// Moves the bytes once with fio's io_uring engine from ordinary memory, as its users do, and blocks until it has.
/// @returns bytes per second as fio reports them. @throws Error if fio fails, with what it says.
[[nodiscard]] double run_fio(const FioOptions& options);

}  // namespace spillway::app

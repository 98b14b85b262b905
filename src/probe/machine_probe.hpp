#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <spillway/app/config/json.hpp>

namespace spillway::app {

/// A folder that blocks may go to, and what the storage engine moves there. Rates in bytes per second.
struct DiskProbe {
  std::string folder = {};
  std::string file_system = {};
  std::uint64_t free_bytes = 0;
  bool direct = false;      ///< Whether direct I/O works there.
  std::string engine = {};  ///< The one that is chosen for it.
  std::string note = {};    ///< What the engine could not have; empty where it has all.
  double first_write_rate = 0.0;
  double write_rate = 0.0;
  double read_rate = 0.0;
};

/// A GPU, and the link to it from ordinary memory.
struct GpuProbe {
  std::string name;
  double to_device_rate = 0.0;
  double to_host_rate = 0.0;
};

struct MachineProbe {
  Json machine;                              ///< describe_machine().
  std::uint64_t memory_available_bytes = 0;  ///< What the kernel would give without swapping.
  double memory_read_rate = 0.0;             ///< Of one thread, on huge pages.
  double memory_copy_rate = 0.0;             ///< Bytes copied: each is read and written.
  std::string transparent_huge_pages;        ///< "always", "madvise", "never"; empty: the kernel has none.
  std::uint64_t reserved_huge_page_bytes = 0;
  std::optional<std::uint64_t> memlock_bytes;  ///< Nothing: no limit.
  std::string io_uring_refused;                ///< Why; empty where it works.
  std::vector<DiskProbe> disks;
  std::vector<GpuProbe> gpus;
};

struct ProbeOptions {
  std::vector<std::string> folders;
  std::uint64_t bytes = std::uint64_t{512} << 20;  ///< Moved in each measurement of a disk, which needs that much.
};

/// Memory that the kernel would give now without swapping; 0 where /proc can't be read.
[[nodiscard]] std::uint64_t available_memory_bytes();

/// Looks and measures: a few seconds. Nothing is left behind. GPUs are the caller's to add, since finding them takes
/// LibTorch. @throws IoError or OutOfSpace for a folder.
[[nodiscard]] MachineProbe probe_machine(const ProbeOptions& options);

[[nodiscard]] Json to_json(const MachineProbe& probe);
/// A few lines for a person.
[[nodiscard]] std::string describe(const MachineProbe& probe);

}  // namespace spillway::app

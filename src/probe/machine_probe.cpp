#include <spillway/app/probe/machine_probe.hpp>

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>

#include <spillway/app/bench/bench_report.hpp>
#include <spillway/app/bench/cost_clock.hpp>
#include <spillway/app/bench/engine_side.hpp>
#include <spillway/app/bench/log_sinks.hpp>
#include <spillway/app/bench/uring_loop.hpp>
#include <spillway/app/probe/file_system_name.hpp>
#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/format_bytes.hpp>
#include <spillway/offload/swap_file.hpp>

namespace spillway::app {
namespace {

constexpr std::uint64_t kMemoryBytes = std::uint64_t{256} << 20;  // More than caches hold.
constexpr unsigned kPasses = 3;
constexpr unsigned kLockCapability = 14;  // CAP_IPC_LOCK, before which no limit holds.

/// The number behind `key` in a file of "key: number kB" or "key number" lines.
std::uint64_t number_in(const char* path, const std::string& key, int base = 10) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) == 0) {
      return std::strtoull(line.c_str() + key.size(), nullptr, base);
    }
  }
  return 0;
}

/// "madvise" of "always [madvise] never".
std::string transparent_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  const std::size_t open = line.find('[');
  const std::size_t close = line.find(']');
  return open == std::string::npos || close == std::string::npos ? std::string()
                                                                 : line.substr(open + 1, close - open - 1);
}

std::optional<std::uint64_t> memlock_bytes() {
  rlimit limit{};
  const std::uint64_t capabilities = number_in("/proc/self/status", "CapEff:", 16);
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      ((capabilities >> kLockCapability) & 1) != 0) {
    return std::nullopt;
  }
  return limit.rlim_cur;
}

double best_rate(std::uint64_t bytes, const auto& body) {
  double rate = 0.0;
  for (unsigned pass = 0; pass < kPasses; ++pass) {
    const CostClock clock;
    body();
    rate = std::max(rate, static_cast<double>(bytes) / clock.elapsed().seconds);
  }
  return rate;
}

std::uint64_t sum(std::span<const std::byte> memory) {
  const std::span words(reinterpret_cast<const std::uint64_t*>(memory.data()), memory.size() / sizeof(std::uint64_t));
  std::array<std::uint64_t, 8> sums{};  // Independent of one another, so that memory decides and not the additions.
  for (std::size_t i = 0; i + sums.size() <= words.size(); i += sums.size()) {
    for (std::size_t lane = 0; lane < sums.size(); ++lane) {
      sums[lane] += words[i + lane];
    }
  }
  std::uint64_t total = 0;
  for (const std::uint64_t part : sums) {
    total += part;
  }
  return total;
}

void probe_memory(MachineProbe& probe) {
  const offload::AlignedBlock source(kMemoryBytes);
  const offload::AlignedBlock target(kMemoryBytes);
  volatile std::uint64_t result = 0;  // The sum has to be made.
  probe.memory_read_rate = best_rate(kMemoryBytes, [&] { result = sum(source.bytes()); });
  probe.memory_copy_rate = best_rate(
      kMemoryBytes, [&] { std::memcpy(target.bytes().data(), source.bytes().data(), target.bytes().size()); });
  static_cast<void>(result);
}

DiskProbe probe_disk(const std::string& folder, std::uint64_t bytes, std::span<std::byte> memory) {
  DiskProbe probe{.folder = folder, .file_system = file_system_name(folder)};
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) == 0) {
    probe.free_bytes = std::uint64_t{status.f_bavail} * status.f_frsize;
  }
  offload::SwapFile file(folder, say_nothing);
  file.grow(bytes);
  probe.direct = file.direct();
  EngineSide engine(folder, memory);
  const auto rate = [&](IoDirection direction) {
    const IoJob job{.fd = file.fd(), .direction = direction, .bytes = bytes};
    return static_cast<double>(bytes) / engine.measure(job).seconds;
  };
  probe.first_write_rate = rate(IoDirection::kWrite);
  for (unsigned pass = 0; pass < kPasses; ++pass) {
    probe.write_rate = std::max(probe.write_rate, rate(IoDirection::kWrite));
    probe.read_rate = std::max(probe.read_rate, rate(IoDirection::kRead));
  }
  probe.engine = engine.info().name + (engine.info().fixed_buffers ? " with fixed buffers" : "");
  probe.note = engine.info().note;
  return probe;
}

Json to_json(const DiskProbe& disk) {
  return Json::Object{{"folder", disk.folder},
                      {"file_system", disk.file_system},
                      {"free_bytes", disk.free_bytes},
                      {"direct_io", disk.direct},
                      {"engine", disk.engine},
                      {"note", disk.note.empty() ? Json(nullptr) : Json(disk.note)},
                      {"first_write_bytes_per_s", disk.first_write_rate},
                      {"write_bytes_per_s", disk.write_rate},
                      {"read_bytes_per_s", disk.read_rate}};
}

std::string per_second(double rate) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f GB/s", rate / 1e9);
  return text.data();
}

std::string text_of(const Json& machine, const char* key) {
  const Json* const member = machine.find(key);
  const auto* const text = member != nullptr ? member->get_if<std::string>() : nullptr;
  return text != nullptr ? *text : std::string("unknown");
}

std::uint64_t number_of(const Json& machine, const char* key) {
  const Json* const member = machine.find(key);
  const auto* const number = member != nullptr ? member->get_if<std::uint64_t>() : nullptr;
  return number != nullptr ? *number : 0;
}

}  // namespace

std::uint64_t available_memory_bytes() { return number_in("/proc/meminfo", "MemAvailable:") * 1024; }

MachineProbe probe_machine(const ProbeOptions& options) {
  MachineProbe probe;
  probe.machine = describe_machine();
  probe.memory_available_bytes = available_memory_bytes();
  probe.transparent_huge_pages = transparent_huge_pages();
  probe.reserved_huge_page_bytes =
      number_in("/proc/meminfo", "HugePages_Free:") * number_in("/proc/meminfo", "Hugepagesize:") * 1024;
  probe.memlock_bytes = memlock_bytes();
  probe.io_uring_refused = uring_loop_unavailable();
  probe_memory(probe);
  if (!options.folders.empty()) {
    const offload::AlignedBlock memory(EngineSide::kMemoryBytes);
    const std::uint64_t unit = IoJob{}.request_bytes;
    for (const std::string& folder : options.folders) {
      probe.disks.push_back(
          probe_disk(folder, std::max(options.bytes / unit, std::uint64_t{1}) * unit, memory.bytes()));
    }
  }
  return probe;
}

Json to_json(const MachineProbe& probe) {
  Json json = probe.machine;
  Json::Array disks;
  for (const DiskProbe& disk : probe.disks) {
    disks.push_back(to_json(disk));
  }
  Json::Array gpus;
  for (const GpuProbe& gpu : probe.gpus) {
    gpus.push_back(Json::Object{
        {"name", gpu.name}, {"to_device_bytes_per_s", gpu.to_device_rate}, {"to_host_bytes_per_s", gpu.to_host_rate}});
  }
  auto& members = *json.get_if<Json::Object>();
  members.emplace_back("memory_available_bytes", probe.memory_available_bytes);
  members.emplace_back("memory_read_bytes_per_s", probe.memory_read_rate);
  members.emplace_back("memory_copy_bytes_per_s", probe.memory_copy_rate);
  members.emplace_back("transparent_huge_pages", probe.transparent_huge_pages);
  members.emplace_back("reserved_huge_page_bytes", probe.reserved_huge_page_bytes);
  members.emplace_back("memlock_bytes", probe.memlock_bytes ? Json(*probe.memlock_bytes) : Json(nullptr));
  members.emplace_back("io_uring", probe.io_uring_refused.empty());
  members.emplace_back("io_uring_refused",
                       probe.io_uring_refused.empty() ? Json(nullptr) : Json(probe.io_uring_refused));
  members.emplace_back("disks", std::move(disks));
  members.emplace_back("gpus", std::move(gpus));
  return json;
}

std::string describe(const MachineProbe& probe) {
  using offload::format_bytes;
  const std::string pages = probe.transparent_huge_pages;
  std::string text =
      "processor  " + text_of(probe.machine, "cpu") + ", " + std::to_string(number_of(probe.machine, "cores")) +
      " cores, Linux " + text_of(probe.machine, "kernel") + "\n" +  //
      "memory     " + format_bytes(number_of(probe.machine, "memory_bytes")) + ", " +
      format_bytes(probe.memory_available_bytes) + " available; one thread reads " +
      per_second(probe.memory_read_rate) + " and copies " + per_second(probe.memory_copy_rate) + "\n" +  //
      "pages      transparent huge pages: " + (pages.empty() ? "none" : pages) +
      (pages == "never" ? ", which halves the rate of direct I/O" : "") +
      "; reserved: " + format_bytes(probe.reserved_huge_page_bytes) + "\n" +  //
      "memlock    " + (probe.memlock_bytes ? format_bytes(*probe.memlock_bytes) : std::string("no limit")) + "\n" +
      "io_uring   " + (probe.io_uring_refused.empty() ? "works" : probe.io_uring_refused) + "\n";
  for (const DiskProbe& disk : probe.disks) {
    text += "disk       " + disk.folder + " (" + disk.file_system + ", " + format_bytes(disk.free_bytes) + " free" +
            (disk.direct ? "" : ", no direct I/O") + "), engine " + disk.engine + ": reads " +
            per_second(disk.read_rate) + ", overwrites " + per_second(disk.write_rate) + ", first writes " +
            per_second(disk.first_write_rate) + (disk.note.empty() ? "" : "; " + disk.note) + "\n";
  }
  for (const GpuProbe& gpu : probe.gpus) {
    text += "gpu        " + gpu.name + ": to the device " + per_second(gpu.to_device_rate) + ", to the host " +
            per_second(gpu.to_host_rate) + "\n";
  }
  return text + (probe.gpus.empty() ? "gpu        none that CUDA finds\n" : "");
}

}  // namespace spillway::app

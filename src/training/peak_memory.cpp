#include <spillway/app/training/peak_memory.hpp>

#include <fstream>
#include <string>

namespace spillway::app {

std::uint64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  return 0;
}

bool reset_peak_resident_bytes() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << 5 << std::flush;
  return clear.good();
}

}  // namespace spillway::app

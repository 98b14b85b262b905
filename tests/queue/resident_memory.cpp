#include <queue/resident_memory.hpp>

#include <malloc.h>

#include <fstream>
#include <stdexcept>
#include <string>

namespace spillway::test {

namespace {

/// A line of /proc/self/status, in bytes.
std::int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != key + ":") continue;
    std::int64_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes * 1024;
  }
  throw std::runtime_error("/proc/self/status has no " + key);
}

}  // namespace

std::int64_t peak_growth_bytes(const std::function<void()>& body) {
  mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  malloc_trim(0);                                 // What is free already must not be taken for what was not needed.
  std::ofstream("/proc/self/clear_refs") << "5";  // Resets the peak.
  const std::int64_t before = status_bytes("VmRSS");
  body();
  return status_bytes("VmHWM") - before;
}

}  // namespace spillway::test

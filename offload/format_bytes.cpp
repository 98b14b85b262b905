#include <spillway/offload/format_bytes.hpp>

#include <array>
#include <cstdio>

namespace spillway::offload {

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  std::uint64_t unit_bytes = 1;
  while (unit + 1 < kUnits.size() && bytes / unit_bytes >= 1024) {
    unit_bytes *= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  if (bytes % unit_bytes == 0) {
    std::snprintf(text.data(), text.size(), "%llu %s", static_cast<unsigned long long>(bytes / unit_bytes),
                  kUnits.at(unit));
  } else {
    std::snprintf(text.data(), text.size(), "%.2f %s", static_cast<double>(bytes) / static_cast<double>(unit_bytes),
                  kUnits.at(unit));
  }
  return text.data();
}

}  // namespace spillway::offload

#include <spillway/app/cli/byte_size.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>

#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr std::array<Unit, 10> kUnits = {{{"", 1.0},
                                          {"b", 1.0},
                                          {"kb", 1e3},
                                          {"mb", 1e6},
                                          {"gb", 1e9},
                                          {"tb", 1e12},
                                          {"kib", 1024.0},
                                          {"mib", 1024.0 * 1024.0},
                                          {"gib", 1024.0 * 1024.0 * 1024.0},
                                          {"tib", 1024.0 * 1024.0 * 1024.0 * 1024.0}}};

}  // namespace

std::uint64_t parse_byte_size(const std::string& text, const std::string& what) {
  double number = 0.0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  unit.erase(0, std::min(unit.find_first_not_of(' '), unit.size()));
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto* known = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return u.name == unit; });
  constexpr double kLimit = 9.0e18;  // Below 2^63, so that sums of a few sizes can't wrap.
  if (failure == std::errc() && known != kUnits.end()) {
    const double bytes = number * known->bytes;
    if (bytes >= 1.0 && bytes < kLimit && bytes == std::floor(bytes)) return static_cast<std::uint64_t>(bytes);
  }
  throw ConfigError(what + ": '" + text + "' is no whole number of bytes above 0; write it as 67108864, 64MiB or 2e9");
}

}  // namespace spillway::app

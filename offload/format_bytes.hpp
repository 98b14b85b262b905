#pragma once

#include <cstdint>
#include <string>

namespace spillway::offload {

/// A size for people: "512 B", "4 KiB", "1.50 GiB"; two decimals where the unit does not divide it.
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);

}  // namespace spillway::offload

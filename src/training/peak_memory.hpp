#pragma once

#include <cstdint>

namespace spillway::app {

/// Most memory that this process ever had resident, as the kernel counts it since it was started (not what its parent
/// had); 0 where /proc can't be read.
[[nodiscard]] std::uint64_t peak_resident_bytes();

/// Counts it anew from here on. False where the kernel can't.
[[nodiscard]] bool reset_peak_resident_bytes();

}  // namespace spillway::app

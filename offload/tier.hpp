#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spillway::offload {

/// Where bytes live. On a machine without a GPU the device tier is the host tier.
enum class Tier : std::uint8_t { kDevice, kHost, kDisk };

[[nodiscard]] constexpr std::string_view to_string(Tier tier) noexcept {
  switch (tier) {
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kDisk:
      return "disk";
  }
  return "unknown";
}

/// Who goes first where several clients compete for a disk; a smaller value is served before a larger one.
enum class Lane : std::uint8_t { kWaited, kBank, kState, kWriteBack, kCheckpoint };
inline constexpr std::size_t kLaneCount = 5;

/// Blocks on disk start at multiples of this, and their length on disk is padded to it: the largest alignment that
/// direct I/O asks for on common file systems.
inline constexpr std::uint64_t kPageBytes = 4096;

/// Bytes that `bytes` of content take up in host staging memory and on disk.
[[nodiscard]] constexpr std::uint64_t page_ceil(std::uint64_t bytes) noexcept {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace spillway::offload

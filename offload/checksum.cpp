#include <spillway/offload/checksum.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace spillway::offload {

std::uint64_t xxh3_64(std::span<const std::byte> bytes, std::uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace spillway::offload

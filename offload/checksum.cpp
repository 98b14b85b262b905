#include <spillway/offload/checksum.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace spillway::offload {

#ifdef SPILLWAY_CHECKSUM_AVX2
std::uint64_t xxh3_64_avx2(const void* data, std::size_t bytes, std::uint64_t seed) noexcept;
#endif

std::uint64_t xxh3_64_portable(std::span<const std::byte> bytes, std::uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::uint64_t xxh3_64(std::span<const std::byte> bytes, std::uint64_t seed) noexcept {
#ifdef SPILLWAY_CHECKSUM_AVX2
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2) {
    return xxh3_64_avx2(bytes.data(), bytes.size(), seed);
  }
#endif
  return xxh3_64_portable(bytes, seed);
}

}  // namespace spillway::offload

// Compiled for processors that have AVX2, and called on no other. Includes nothing that has inline functions: the
// linker might choose the ones from here for all.
#include <cstddef>
#include <cstdint>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace spillway::offload {

std::uint64_t xxh3_64_avx2(const void* data, std::size_t bytes, std::uint64_t seed) noexcept;

std::uint64_t xxh3_64_avx2(const void* data, std::size_t bytes, std::uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

}  // namespace spillway::offload

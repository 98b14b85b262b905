#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace spillway::offload {

/// XXH3-64 of `bytes` with `seed`. Identity (block, generation) goes into the seed, so that the right bytes in the
/// wrong place are a mismatch too.
[[nodiscard]] std::uint64_t xxh3_64(std::span<const std::byte> bytes, std::uint64_t seed = 0) noexcept;

/// The same for every processor: what xxh3_64 does where it finds no instructions that suit it better.
[[nodiscard]] std::uint64_t xxh3_64_portable(std::span<const std::byte> bytes, std::uint64_t seed = 0) noexcept;

}  // namespace spillway::offload

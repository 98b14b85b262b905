#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/storage_engine.hpp>
#include <spillway/offload/swap_file.hpp>

#include "support/property.hpp"
#include "support/temp_dir.hpp"

namespace spillway::test {

inline constexpr std::chrono::milliseconds kLong{30'000};  ///< Longer than anything here takes; a hang ends by it.
inline constexpr auto kRead = offload::IoRequest::Operation::kRead;
inline constexpr auto kWrite = offload::IoRequest::Operation::kWrite;

/// Page-aligned memory filled with bytes that differ from place to place.
inline offload::AlignedBlock filled_block(std::uint64_t bytes, std::uint64_t seed) {
  offload::AlignedBlock block(bytes);
  Random random(seed);
  const std::span<std::byte> memory = block.bytes();
  for (std::size_t i = 0; i + sizeof(std::uint64_t) <= memory.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t value = random.engine()();
    std::memcpy(memory.data() + i, &value, sizeof value);
  }
  return block;
}

inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

/// A nameless file of a given size in a folder of its own.
struct ScratchFile {
  explicit ScratchFile(std::uint64_t bytes) : file(folder.path().string(), [](const std::string&) {}) {
    file.grow(bytes);
  }
  TempDir folder;
  offload::SwapFile file;
};

inline offload::IoRequest request(offload::IoRequest::Operation operation, offload::FileId file, std::uint64_t offset,
                                  std::span<std::byte> memory, offload::Lane lane = offload::Lane::kState) {
  return {.operation = operation, .file = file, .offset = offset, .buffer = memory, .lane = lane};
}

}  // namespace spillway::test

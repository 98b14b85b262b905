#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace spillway::offload {

/// Free space in a linear range (a swap file, a slab of memory): first fit, neighbours joined. Lengths are rounded up
/// to kPageBytes, so that every offset is a multiple of it. Not thread-safe.
class ExtentMap {
 public:
  explicit ExtentMap(std::uint64_t bytes = 0);

  /// Offset of a free extent of at least `bytes`, or nothing if none is long enough.
  [[nodiscard]] std::optional<std::uint64_t> try_allocate(std::uint64_t bytes);
  /// Gives back exactly what one try_allocate(bytes) returned. A double or overlapping free is a programmer's error.
  void free(std::uint64_t offset, std::uint64_t bytes);
  /// Appends `bytes` of free space at the end.
  void grow(std::uint64_t bytes);

  [[nodiscard]] std::uint64_t total_bytes() const noexcept { return total_bytes_; }
  [[nodiscard]] std::uint64_t free_bytes() const noexcept { return free_bytes_; }
  /// Free space at the very end of the range: what a later grow() joins.
  [[nodiscard]] std::uint64_t free_bytes_at_end() const noexcept;
  [[nodiscard]] std::uint64_t longest_free_bytes() const noexcept;

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // offset -> length
  std::uint64_t total_bytes_ = 0;
  std::uint64_t free_bytes_ = 0;
};

}  // namespace spillway::offload

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace spillway::offload {

/// Anonymous memory aligned to 2 MiB, advised to lie on huge pages, and touched once (zeroed) when made: physically
/// contiguous memory doubles the rate of direct I/O. An inaccessible page on either side ends a run past its bounds.
/// Move-only owner; a moved-from object is empty.
/// Costs exactly the bytes asked for, rounded up to 4 KiB (address space: 2 MiB more); no power-of-two rounding.
class AlignedBlock {
 public:
  AlignedBlock() noexcept = default;
  /// @throws Error if the operating system has no memory left. Does not consult a budget: the caller has reserved.
  explicit AlignedBlock(std::uint64_t bytes);
  AlignedBlock(AlignedBlock&& other) noexcept;
  AlignedBlock& operator=(AlignedBlock&& other) noexcept;
  AlignedBlock(const AlignedBlock&) = delete;
  AlignedBlock& operator=(const AlignedBlock&) = delete;
  ~AlignedBlock();

  /// The bytes asked for; what lies between their end and that of the page is accessible and zero.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
  /// How much of it the kernel really put on huge pages, from smaps; 0 where that can't be read. Slow: for start-up
  /// reports and tests.
  [[nodiscard]] std::uint64_t huge_page_bytes() const;
  /// How much of it takes up memory, from smaps. Slow as well.
  [[nodiscard]] std::uint64_t resident_bytes() const;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  void* mapping_ = nullptr;
  std::size_t mapping_size_ = 0;
};

}  // namespace spillway::offload

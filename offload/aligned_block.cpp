#include <spillway/offload/aligned_block.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>
#include <spillway/offload/parallel.hpp>
#include <spillway/offload/tier.hpp>

namespace spillway::offload {
namespace {

constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;

[[noreturn]] void throw_no_memory(std::uint64_t bytes, int error_number) {
  throw Error("the operating system has no " + format_bytes(bytes) +
              " of memory for staging buffers: " + std::generic_category().message(error_number) +
              "; lower offload.host_bytes (--host-budget) or free memory");
}

// Has every page in place before the first transfer. Where the kernel is too old to do it in one call (before 5.14)
// a write to each page does.
void touch_piece(std::byte* data, std::uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (::madvise(data, bytes, MADV_POPULATE_WRITE) == 0) {
    return;
  }
  if (errno != EINVAL) {
    throw_no_memory(bytes, errno);
  }
#endif
  for (std::uint64_t offset = 0; offset < bytes; offset += kPageBytes) {
    *static_cast<volatile std::byte*>(data + offset) = std::byte{0};
  }
}

// The kernel clears a page in the thread that touches it first, at a few GiB per second: several of them fill a large
// block sooner, and each its part of the memory that is near it.
void touch(std::byte* data, std::uint64_t bytes) {
  constexpr std::uint64_t kPieceBytes = std::uint64_t{64} << 20;
  const std::uint64_t whole = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const auto touch_range = [&](Range range) {
    touch_piece(data + range.begin, std::min(range.end, bytes) - range.begin);
  };
  whole <= kPieceBytes ? touch_range({0, whole}) : Parallel().for_ranges(whole, kPieceBytes, touch_range);
}

// The value of one field ("Rss", "AnonHugePages") of the mapping that starts at `data`: the inaccessible pages around
// it keep the kernel from joining it with others.
std::uint64_t smaps_bytes(const std::byte* data, const std::string& field) {
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    unsigned long kibibytes = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = begin == reinterpret_cast<std::uintptr_t>(data);
    } else if (inside && line.rfind(field + ":", 0) == 0 &&
               std::sscanf(line.c_str() + field.size() + 1, "%lu", &kibibytes) == 1) {
      return std::uint64_t{kibibytes} * 1024;
    }
  }
  return 0;
}

}  // namespace

AlignedBlock::AlignedBlock(std::uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  const std::uint64_t usable = page_ceil(bytes);
  const std::uint64_t reserved = usable + kHugePageBytes + kPageBytes;
  if (reserved < bytes) {
    throw_no_memory(bytes, ENOMEM);
  }
  void* mapping = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    throw_no_memory(bytes, errno);
  }
  AlignedBlock owner;  // From here on an exception unmaps.
  owner.mapping_ = mapping;
  owner.mapping_size_ = reserved;
  const auto lowest = reinterpret_cast<std::uintptr_t>(mapping) + kPageBytes;
  const std::uintptr_t aligned = (lowest + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  owner.data_ = static_cast<std::byte*>(mapping) + (aligned - reinterpret_cast<std::uintptr_t>(mapping));
  owner.size_ = bytes;
  if (::mprotect(owner.data_, usable, PROT_READ | PROT_WRITE) != 0) {
    throw_no_memory(bytes, errno);
  }
  // Without transparent huge pages in the kernel this fails, and all works on small ones.
  static_cast<void>(::madvise(owner.data_, usable, MADV_HUGEPAGE));
  touch(owner.data_, usable);
  *this = std::move(owner);
}

AlignedBlock::AlignedBlock(AlignedBlock&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_size_(std::exchange(other.mapping_size_, 0)) {}

AlignedBlock& AlignedBlock::operator=(AlignedBlock&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_size_, other.mapping_size_);
  return *this;
}

AlignedBlock::~AlignedBlock() {
  if (mapping_ != nullptr) {
    ::munmap(mapping_, mapping_size_);
  }
}

std::uint64_t AlignedBlock::huge_page_bytes() const { return smaps_bytes(data_, "AnonHugePages"); }

std::uint64_t AlignedBlock::resident_bytes() const { return smaps_bytes(data_, "Rss"); }

}  // namespace spillway::offload

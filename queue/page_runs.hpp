#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace spillway::queue {

/// Merges the pages that some rows of cold segments lie on into few reads, into one buffer. Pure bookkeeping; not
/// thread-safe.
class PageRuns {
 public:
  /// Pages between two rows that are read along rather than beginning another read: a read costs about as much as
  /// 16 KiB more in one.
  static constexpr std::uint64_t kGapPages = 4;

  /// Whole pages of one segment, and where in the buffer they go.
  struct Run {
    std::size_t segment = 0;
    std::uint64_t first_page = 0;
    std::uint64_t pages = 0;
    std::uint64_t buffer_page = 0;
  };

  /// @param buffer_pages  >= the pages of any one row.
  explicit PageRuns(std::uint64_t buffer_pages) : buffer_pages_(buffer_pages) {}

  /// Adds bytes [offset, offset + bytes) of a segment. Segments come one after another, offsets in them ascend (may
  /// repeat). @returns where in the buffer the bytes will be; nothing where they have no room any more: read and
  /// clear() first.
  [[nodiscard]] std::optional<std::uint64_t> add(std::size_t segment, std::uint64_t offset, std::uint64_t bytes);
  [[nodiscard]] std::span<const Run> runs() const noexcept { return runs_; }
  void clear() noexcept { runs_.clear(); }

 private:
  std::uint64_t buffer_pages_;
  std::vector<Run> runs_;
};

/// Checksums of the pages of one segment, kept in memory: what the block's own checksum, which is of the whole, can't
/// tell of a page that is read alone.
class PageSums {
 public:
  PageSums() = default;
  /// @param segment  Goes into the sums with the page's number: a page of elsewhere does not match.
  PageSums(std::uint64_t segment, std::span<const std::byte> contents);

  /// @param page  As read from disk: kPageBytes, of which those beyond the segment's end are not looked at.
  [[nodiscard]] bool match(std::uint64_t page, std::span<const std::byte> bytes) const;

 private:
  [[nodiscard]] std::uint64_t sum_of(std::uint64_t page, std::span<const std::byte> contents) const;

  std::uint64_t segment_ = 0;
  std::uint64_t content_bytes_ = 0;
  std::vector<std::uint64_t> sums_;
};

}  // namespace spillway::queue

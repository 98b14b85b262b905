#include <algorithm>

#include <spillway/offload/checksum.hpp>
#include <spillway/offload/tier.hpp>
#include <spillway/queue/page_runs.hpp>

namespace spillway::queue {

using offload::kPageBytes;

std::optional<std::uint64_t> PageRuns::add(std::size_t segment, std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t first = offset / kPageBytes;
  const std::uint64_t end = (offset + bytes + kPageBytes - 1) / kPageBytes;
  const std::uint64_t used = runs_.empty() ? 0 : runs_.back().buffer_page + runs_.back().pages;
  const bool joins = !runs_.empty() && runs_.back().segment == segment &&
                     first <= runs_.back().first_page + runs_.back().pages + kGapPages;
  if (!joins) {
    if (used + (end - first) > buffer_pages_) return std::nullopt;
    runs_.push_back({segment, first, end - first, used});
  } else {
    Run& run = runs_.back();
    const std::uint64_t pages = std::max(run.pages, end - run.first_page);
    if (run.buffer_page + pages > buffer_pages_) return std::nullopt;
    run.pages = pages;
  }
  const Run& run = runs_.back();
  return (run.buffer_page - run.first_page) * kPageBytes + offset;
}

PageSums::PageSums(std::uint64_t segment, std::span<const std::byte> contents)
    : segment_(segment), content_bytes_(contents.size()) {
  const std::uint64_t pages = offload::page_ceil(contents.size()) / kPageBytes;
  sums_.reserve(pages);
  for (std::uint64_t page = 0; page < pages; ++page) sums_.push_back(sum_of(page, contents.subspan(page * kPageBytes)));
}

bool PageSums::match(std::uint64_t page, std::span<const std::byte> bytes) const {
  return sum_of(page, bytes) == sums_.at(page);
}

std::uint64_t PageSums::sum_of(std::uint64_t page, std::span<const std::byte> contents) const {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;  // Spreads the segments' numbers over all bits of the seed.
  const std::uint64_t bytes = std::min({kPageBytes, content_bytes_ - page * kPageBytes, contents.size()});
  return offload::xxh3_64(contents.first(bytes), segment_ * kOdd + page);
}

}  // namespace spillway::queue

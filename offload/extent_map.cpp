#include <spillway/offload/extent_map.hpp>

#include <algorithm>
#include <iterator>

#include <spillway/offload/check.hpp>
#include <spillway/offload/tier.hpp>

namespace spillway::offload {

ExtentMap::ExtentMap(std::uint64_t bytes) { grow(bytes); }

std::optional<std::uint64_t> ExtentMap::try_allocate(std::uint64_t bytes) {
  SPILLWAY_CHECK(bytes > 0, "an extent of no bytes");
  if (bytes > free_bytes_) {
    return std::nullopt;  // Also keeps the rounding below from overflowing.
  }
  const std::uint64_t wanted = page_ceil(bytes);
  const auto found =
      std::find_if(free_.begin(), free_.end(), [&](const auto& extent) { return extent.second >= wanted; });
  if (found == free_.end()) {
    return std::nullopt;
  }
  const auto [offset, length] = *found;
  if (length > wanted) {
    free_.emplace_hint(std::next(found), offset + wanted, length - wanted);
  }
  free_.erase(found);
  free_bytes_ -= wanted;
  return offset;
}

void ExtentMap::free(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t length = page_ceil(bytes);
  SPILLWAY_CHECK(length > 0 && offset % kPageBytes == 0 && length <= total_bytes_ && offset <= total_bytes_ - length,
                 "an extent outside of the range is freed");
  auto next = free_.lower_bound(offset);
  SPILLWAY_CHECK(next == free_.end() || offset + length <= next->first, "an extent is freed twice");
  const bool joins_next = next != free_.end() && next->first == offset + length;
  auto before = next == free_.begin() ? free_.end() : std::prev(next);
  SPILLWAY_CHECK(before == free_.end() || before->first + before->second <= offset, "an extent is freed twice");
  const bool joins_before = before != free_.end() && before->first + before->second == offset;

  const std::uint64_t joined = length + (joins_next ? next->second : 0);
  if (joins_next) {
    next = free_.erase(next);
  }
  if (joins_before) {
    before->second += joined;
  } else {
    free_.emplace_hint(next, offset, joined);
  }
  free_bytes_ += length;
}

void ExtentMap::grow(std::uint64_t bytes) {
  const std::uint64_t length = page_ceil(bytes);
  if (length == 0) {
    return;
  }
  total_bytes_ += length;
  free(total_bytes_ - length, length);
}

std::uint64_t ExtentMap::free_bytes_at_end() const noexcept {
  if (free_.empty()) {
    return 0;
  }
  const auto [offset, length] = *std::prev(free_.end());
  return offset + length == total_bytes_ ? length : 0;
}

std::uint64_t ExtentMap::longest_free_bytes() const noexcept {
  std::uint64_t longest = 0;
  for (const auto& [offset, length] : free_) {
    longest = std::max(longest, length);
  }
  return longest;
}

}  // namespace spillway::offload

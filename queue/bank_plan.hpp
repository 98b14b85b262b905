#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <c10/core/ScalarType.h>

#include <spillway/queue/segment_ring.hpp>

namespace spillway::queue {

/// Rows of one tile of a scan at most. A constant, not a setting: tiles decide the order of the additions in the loss,
/// and a result must depend on nothing but its inputs. 512 rows keep the logits of some hundred queries in the cache.
inline constexpr std::int64_t kTileRows = 512;

/// Rows of one tile of a bank of this dimension: fewer where rows are long, so that a tile has 2^19 elements at most
/// and does not outgrow the cache, nor the bank that it is a part of.
[[nodiscard]] constexpr std::int64_t tile_rows(std::int64_t dim) noexcept {
  constexpr std::int64_t kElements = kTileRows * 1024;
  return dim <= 1024 ? kTileRows : kElements / dim > 1 ? kElements / dim : 1;
}

struct BankOptions {
  std::int64_t capacity = 65'536;     ///< Rows that the bank holds at most.
  std::int64_t dim = 128;             ///< Elements of a row.
  at::ScalarType dtype = at::kHalf;   ///< Of the stored rows: kHalf, kBFloat16, kFloat, kDouble; kChar: RowFormat.
  std::int64_t segment_rows = 4'096;  ///< Rows that move between the tiers together.
  std::uint64_t host_bytes = 64ULL << 20U;  ///< Host memory for all of the bank: segments, ring, tile, labels.
  bool disk_allowed = false;                ///< Whether segments that do not fit in host memory may go to disk.
  unsigned ring_slots = 4;                  ///< Staging buffers for segments that come from disk; 2 to 64.
  bool labels = false;                      ///< Whether each row has a label (class or id) beside it, in host memory.
  std::int64_t capacity_max = 0;            ///< What resize() may grow it to; space is set aside for that. 0: capacity.
  std::string name = "bank";                ///< Names the bank in errors and reports.

  [[nodiscard]] std::int64_t capacity_limit() const noexcept { return capacity_max == 0 ? capacity : capacity_max; }
  /// @throws ConfigError where the bank cannot be resized to `wanted` rows: they are not 1 to capacity_limit().
  void check_resize(std::int64_t wanted) const;
};

/// Memory for the checksums of the pages of so many bytes on disk: 8 bytes for each 4 KiB.
[[nodiscard]] constexpr std::uint64_t page_sum_bytes(std::uint64_t bytes) noexcept { return bytes / 4096 * 8; }

/// What the bank takes up once it is full.
struct BankPlacement {
  std::int64_t segments_max = 0;
  std::int64_t resident_segments = 0;  ///< Kept in host memory, the newest ones; all of them where nothing spills.
  std::uint64_t segment_bytes = 0;     ///< Of one segment in memory and on disk, padded to pages.
  std::uint64_t resident_bytes = 0;
  std::uint64_t ring_bytes = 0;  ///< 0 where nothing spills.
  std::uint64_t tile_bytes = 0;
  std::uint64_t label_bytes = 0;  ///< 0 in a bank without labels.
  std::uint64_t sum_bytes = 0;    ///< Checksums of the pages of segments on disk; 0 where nothing spills.
  std::uint64_t disk_bytes = 0;

  /// What the bank needs beside its segments and the ring.
  [[nodiscard]] std::uint64_t fixed_bytes() const noexcept { return tile_bytes + label_bytes + sum_bytes; }
  [[nodiscard]] std::uint64_t host_bytes() const noexcept { return resident_bytes + ring_bytes + fixed_bytes(); }
};

/// Pure: reserves nothing. Everything stays in host memory if it fits; otherwise a ring is set aside, and as many of
/// the newest segments stay as fit beside it.
/// @throws ConfigError for a size that makes no sense, BudgetExceeded with the sizes if host_bytes do not hold the
/// bank, or not even its ring and open segment.
[[nodiscard]] BankPlacement place_bank(const BankOptions& options);

/// Bytes between host memory and disk, padding included.
struct BankTraffic {
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;

  BankTraffic& operator+=(const BankTraffic& other) noexcept {
    read_bytes += other.read_bytes;
    written_bytes += other.written_bytes;
    return *this;
  }
  friend bool operator==(const BankTraffic&, const BankTraffic&) = default;
};

/// Says what a bank will move before there is one: exact, by the rules that the bank itself follows, for a bank that
/// starts empty, rejects no row, and is scanned to the end each time.
class BankForecast {
 public:
  /// @throws as place_bank.
  explicit BankForecast(const BankOptions& options);

  /// One enqueue of `rows` rows. @returns what it writes; it ends in the background.
  BankTraffic enqueue(std::int64_t rows);
  /// Another capacity, 1 to BankOptions::capacity_limit(). Moves nothing.
  void resize(std::int64_t capacity);
  /// One scan of the bank as it then is. Reads each segment on disk once.
  [[nodiscard]] BankTraffic scan() const;

 private:
  BankTraffic settle(std::int64_t pending);

  std::int64_t capacity_;
  BankPlacement placement_;
  SegmentRing ring_;
};

struct BankOperation {
  enum class Kind : std::uint8_t { kScan, kEnqueue, kResize };
  Kind kind = Kind::kScan;
  std::int64_t rows = 0;  ///< Of an enqueue; the new capacity of a resize.
};

/// What a whole run moves: the sum of a forecast over `operations`, in order. @throws as place_bank.
[[nodiscard]] BankTraffic predict_bank_traffic(const BankOptions& options, std::span<const BankOperation> operations);

}  // namespace spillway::queue

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/block_store.hpp>
#include <spillway/offload/tiers.hpp>
#include <spillway/queue/bank_plan.hpp>
#include <spillway/queue/label_ring.hpp>
#include <spillway/queue/page_runs.hpp>
#include <spillway/queue/row_format.hpp>
#include <spillway/queue/segment_ring.hpp>

namespace spillway::queue {

/// What a scan shows at a time. Valid until the visitor returns.
struct BankTile {
  at::Tensor rows;         ///< [n, dim], contiguous, 64-byte aligned, of the scan's dtype.
  at::Tensor labels;       ///< [n] int64; undefined in a bank without labels.
  std::int64_t first = 0;  ///< Which of the valid rows, counted from the oldest, the tile begins with.
};

/// What a bank has counted. Part of its state, but for `scans`.
struct BankCounts {
  std::uint64_t accepted_rows = 0;  ///< Entered, whether they are still there or not.
  std::uint64_t rejected_rows = 0;  ///< Did not enter, because they were not finite as stored.
  std::uint64_t scans = 0;          ///< Begun in this process.

  friend bool operator==(const BankCounts&, const BankCounts&) = default;
};

/// The newest `capacity` keys that were enqueued, in a ring of segments over host memory and disk: the newest segments
/// in memory as far as the budget allows, older ones on disk, from where a scan streams them ahead of use. Starts
/// empty. Where a row lives never changes what a scan hands out. One caller at a time.
class NegativeBank {
 public:
  /// Reserves everything at once: segments, ring, tile, labels and swap space, for capacity_limit() rows.
  /// @param tiers  Shared with the other clients (optimizer state), which may go in any order.
  /// @throws as place_bank; BudgetExceeded, OutOfSpace or ConfigError if the tiers do not have what the placement asks.
  NegativeBank(std::shared_ptr<offload::Tiers> tiers, const BankOptions& options);
  NegativeBank(const NegativeBank&) = delete;
  NegativeBank& operator=(const NegativeBank&) = delete;
  ~NegativeBank();

  /// Rows that it holds at most now; see resize().
  [[nodiscard]] std::int64_t capacity() const noexcept { return options_.capacity; }
  [[nodiscard]] std::int64_t dim() const noexcept { return options_.dim; }
  [[nodiscard]] at::ScalarType dtype() const noexcept { return options_.dtype; }
  [[nodiscard]] bool has_labels() const noexcept { return options_.labels; }
  [[nodiscard]] const BankOptions& options() const noexcept { return options_; }
  /// Valid rows, 0 to capacity.
  [[nodiscard]] std::int64_t size() const noexcept { return ring_.size(); }
  /// Where the next row goes, counted around a ring of `capacity` places: rows accepted so far modulo capacity; after a
  /// resize() as if the rows that are there had been accepted by an empty bank.
  [[nodiscard]] std::int64_t position() const noexcept { return position_; }
  /// Rows that were not finite (as stored) and did not enter.
  [[nodiscard]] std::uint64_t rejected_rows() const noexcept { return counts_.rejected_rows; }
  [[nodiscard]] const BankCounts& counts() const noexcept { return counts_; }
  /// Another after each change of the rows: two losses with one version between them saw the same negatives.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  [[nodiscard]] const BankPlacement& placement() const noexcept { return placement_; }
  /// Segments that live on `tier` now.
  [[nodiscard]] std::int64_t segments_on(offload::Tier tier) const { return ring_.count_on(tier); }
  /// What the next scan reads from disk, padding included: exact.
  [[nodiscard]] std::uint64_t predicted_read_bytes_per_scan() const;

  /// Adds the rows of `keys` in order, rounded to the bank's dtype, and lets the oldest rows go beyond the capacity: of
  /// a batch that is larger, the newest `capacity` rows survive. A row that is not finite once rounded is dropped with
  /// its label and counted; the first one is reported to the tiers' log.
  /// @param keys    [n, dim], n >= 0, any floating-point dtype, on the CPU; taken without its autograd history.
  /// @param labels  [n] int64 on the CPU: class or id of each key. Given if and only if the bank has labels.
  /// @throws ConfigError (shape, dtype or device: names wanted and got; the bank is unchanged), IoError.
  /// Returns while demoted segments are still being written. Not to be called from a scan.
  void enqueue(const at::Tensor& keys, const at::Tensor& labels = {});
  /// The same for rows that are rounded already, all finite: from admit_keys, or out of another bank.
  /// @throws ConfigError (dtype or shape; the bank is unchanged), IoError.
  void append(const StoredRows& rows);
  /// Counts rows that others have rejected before they came here. @param warning  Said with the first; empty: nothing.
  void note_rejected(std::int64_t rows, const std::string& warning);

  /// Holds `capacity` rows at most from now on. The newest rows stay; growing loses none and moves none.
  /// @throws ConfigError where `capacity` is not 1 to BankOptions::capacity_limit(); nothing is changed then.
  void resize(std::int64_t capacity);
  /// Forgets the oldest rows but `rows` of them (>= 0).
  void keep_newest(std::int64_t rows);
  /// Forgets all rows; what was counted stays counted.
  void clear();
  /// Forgets all rows; those that come lie in their segments as if `rows` (>= 0) had come before them, so that a bank
  /// which gets the rows of another one moves the same bytes from then on (if no batch was larger than that bank).
  /// @throws IoError.
  void restart(std::int64_t rows);
  /// Takes over position and counts of another bank whose rows this one has got.
  /// @throws ConfigError where `position` is not 0 to capacity - 1.
  void restore_counts(std::int64_t position, const BankCounts& counts);

  /// Starts to read the segments on disk, in the order in which the next scan wants them, and returns at once. A scan
  /// does it by itself; called some work earlier (before the encoder runs) it hides the reads. Calling it again changes
  /// nothing. An enqueue that moves or drops a segment before the scan gives the reads up.
  void prefetch();

  using Visitor = std::function<void(const BankTile& tile)>;
  /// Shows all valid rows from the oldest to the newest to `visit`, in tiles of tile_rows(dim) rows counted from the
  /// oldest valid one (the last tile may be shorter), converted to `compute_dtype` (kFloat or kDouble). Shape, order
  /// and alignment of the tiles depend on nothing but the rows. Reads each segment on disk exactly once; blocks where a
  /// read was not hidden.
  /// @throws IoError, Corruption, TimedOut, and what `visit` throws; the bank is unchanged. BudgetExceeded if
  /// kDouble is asked of a bank of a smaller dtype and the tiers lack the memory for the wider tile.
  void scan(at::ScalarType compute_dtype, const Visitor& visit);
  /// Receives rows as they are stored, valid until it returns.
  using StoredVisitor = std::function<void(const StoredRows& rows)>;
  /// Shows all valid rows from the oldest to the newest as they are stored, in pieces of any size: for checkpoints.
  /// Otherwise as scan().
  void scan_stored(const StoredVisitor& visit);

  /// The rows with these indices, counted from the oldest valid row, in their order, converted to `dtype` (kFloat or
  /// kDouble): [m, dim]. Of segments on disk only the pages that the rows lie on are read, neighbours in one read.
  /// @param indices  [m] int64 on the CPU, in any order; may repeat.
  /// @throws ConfigError (no such row), IoError, Corruption, TimedOut.
  [[nodiscard]] at::Tensor rows(const at::Tensor& indices, at::ScalarType dtype);
  /// The same as they are stored, with their labels.
  [[nodiscard]] StoredRows stored_rows(const at::Tensor& indices);
  /// Their labels: [m] int64; undefined in a bank without labels.
  [[nodiscard]] at::Tensor labels(const at::Tensor& indices) const;

  /// Waits until every demotion has ended. @throws IoError.
  void flush();

 private:
  using RunVisitor = std::function<void(const StoredRows& run)>;
  void visit_runs(const RunVisitor& visit);
  void settle();
  void execute(const SegmentRing::Step& step, const StoredRows& rows, std::int64_t first);
  [[nodiscard]] at::Tensor labels_of(std::int64_t first, std::int64_t count) const;
  /// Receives rows as they are stored, and where they stand among those that were asked for.
  using FetchVisitor = std::function<void(const StoredRows& rows, const at::Tensor& places)>;
  void fetch_all(const at::Tensor& indices, const FetchVisitor& visit);
  [[nodiscard]] std::int64_t fetch(std::span<const std::int64_t> ascending, std::byte* memory);
  void read_runs(std::span<const PageRuns::Run> runs);
  void remember_sums(std::size_t segment);
  void give_up_pass();
  void make_tile(at::ScalarType dtype);

  std::shared_ptr<offload::Tiers> tiers_;
  BankOptions options_;
  BankPlacement placement_;
  RowFormat format_;
  SegmentRing ring_;
  offload::BlockStore store_;
  std::deque<offload::BlockId> blocks_;  // One per segment of the ring.
  std::deque<PageSums> page_sums_;       // The same; of those that went to disk.
  offload::Reservation sum_reservation_;
  offload::Reservation tile_reservation_;
  offload::AlignedBlock tile_memory_;
  at::Tensor tile_;
  offload::Reservation label_reservation_;
  std::optional<LabelRing> labels_;
  std::int64_t position_ = 0;
  std::int64_t next_number_ = 0;  // Of the row that enters next; never wraps.
  BankCounts counts_;
  std::uint64_t version_ = 0;
  std::uint64_t segments_opened_ = 0;
  // The store's pass over the segments on disk: none, announced and untouched, or one that a scan has taken up.
  enum class Pass : std::uint8_t { kNone, kAnnounced, kTakenUp };
  Pass pass_ = Pass::kNone;
  bool scanning_ = false;
};

}  // namespace spillway::queue

namespace spillway {
using queue::BankOptions;
using queue::NegativeBank;
}  // namespace spillway

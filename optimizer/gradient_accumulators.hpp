#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/offload/block_store.hpp>
#include <spillway/offload/tiers.hpp>

namespace spillway::optimizer {

/// What the sum of a parameter's gradients is.
enum class SumContent : std::uint8_t {
  kNone,   ///< There was no gradient since zero_grad().
  kStale,  ///< One that a step has taken.
  kZero,   ///< Zeros: zero_grad(false) was called after there was one.
  kSum,    ///< The sum.
};

/// Room for the sum of one parameter's gradients, or of what this rank owns of them.
struct SumSlot {
  std::size_t parameter = 0;
  std::uint64_t begin = 0;  ///< Of a part: @see ShardPiece.
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  at::ScalarType sum_type = at::kFloat;
  at::ScalarType gradient_type = at::kFloat;
  at::ScalarType type = at::kFloat;  ///< Of what is kept: that of the sum, or of the gradient. Set by make_room().
  std::uint64_t offset = 0;          ///< In the cell's block; a multiple of 64.
  SumContent content = SumContent::kNone;

  /// Whether the parameter has a gradient now.
  [[nodiscard]] bool has_gradient() const noexcept {
    return content == SumContent::kZero || content == SumContent::kSum;
  }
};

/// The sums of a bucket that this rank owns: one block.
struct SumCell {
  std::size_t bucket = 0;
  std::vector<SumSlot> slots;
  std::uint64_t bytes = 0;
  offload::BlockStore* store = nullptr;
  offload::BlockId block;
};

/// What an owner adds gradients up in: blocks in host memory or on NVMe, visited in the order of buckets, so that they
/// are read ahead. Used by one thread at a time: the one that adds during rounds, the one that steps between them.
class GradientAccumulators {
 public:
  struct Options {
    bool on_disk = false;
    unsigned ring_slots = 4;
    /// Gradients are kept in their own type, in half of the room where that is of 16 bits, until one would be added to
    /// another: then all get room for sums, for good. For rounds that have one term of each at most.
    bool as_they_come = false;
  };
  /// A slot with its sum: a view of the block, on the CPU.
  struct Sum {
    const SumSlot& slot;
    at::Tensor tensor;
  };

  GradientAccumulators(std::shared_ptr<offload::Tiers> tiers, Options options);

  /// Makes room in new cells, behind those of the same bucket. Offsets and bytes are set here.
  /// @throws BudgetExceeded, OutOfSpace: nothing was made then.
  void make_room(std::vector<SumCell> cells);

  /// To be called before the first cell of a round: @see Options::as_they_come.
  /// @throws BudgetExceeded, OutOfSpace where there is no room for gradients and sums at once; what the store throws.
  void prepare_round();

  /// Adds to each slot of a cell the terms that the rank has for it, in their order; the first one that there is takes
  /// the place of a sum that is none. @param terms  one list for each slot; floating-point, shaped like the slot.
  /// @throws what the store throws.
  void add(SumCell& cell, std::span<const std::vector<at::Tensor>> terms);
  /// Starts to read what the next pass needs first and returns at once. A pass is a round of add(), or one of visit(),
  /// that goes through the cells of all buckets in order.
  void announce();
  /// Shows the sums of one bucket, which must not be changed. @throws what the store or `look` throws.
  void visit(std::size_t bucket, const std::function<void(const std::vector<Sum>& sums)>& look);

  /// After a step: its gradients are used up.
  void use_up() noexcept;
  /// Drops the gradients. With `keep_zeros` parameters that had one since they were dropped before have one of zeros.
  void drop(bool keep_zeros) noexcept;

  [[nodiscard]] std::vector<SumCell>& cells_of(std::size_t bucket);
  /// Null where there is no room for it.
  [[nodiscard]] const SumSlot* find(std::size_t parameter) const;
  [[nodiscard]] std::uint64_t host_bytes() const noexcept { return host_bytes_; }
  [[nodiscard]] std::uint64_t disk_bytes() const noexcept { return disk_bytes_; }

 private:
  struct Place {
    std::size_t bucket = 0;
    std::size_t cell = 0;
    std::size_t slot = 0;
  };

  void widen();
  void begin(offload::Access access);
  /// The next cell of the pass, or the first of a new one with this access.
  [[nodiscard]] offload::Lease acquire(const SumCell& cell, offload::Access access);
  [[nodiscard]] bool holds_sums() const noexcept;
  static at::Tensor view(const SumSlot& slot, std::span<std::byte> block);

  std::shared_ptr<offload::Tiers> tiers_;  // Shared with other clients of the same memory and disk.
  Options options_;
  std::vector<std::unique_ptr<offload::BlockStore>> stores_;
  std::vector<std::vector<SumCell>> cells_;  // By bucket.
  std::unordered_map<std::size_t, Place> places_;
  std::uint64_t host_bytes_ = 0;
  std::uint64_t disk_bytes_ = 0;
  std::size_t count_ = 0;     // Cells.
  std::size_t left_ = 0;      // Cells that the announced pass has yet to come to.
  offload::Access access_{};  // Of that pass.
};

}  // namespace spillway::optimizer

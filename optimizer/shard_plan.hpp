#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spillway::optimizer {

/// What may be given to different ranks.
enum class ShardGranularity : std::uint8_t {
  kTensor,  ///< Whole parameters.
  kBlock,   ///< Blocks of kSquaresBlockNumel elements, for element-wise updates.
};

struct ShardPlanOptions {
  /// One for each rank: the share of the elements that it owns is its weight over the sum of all.
  std::vector<double> weights{1.0};
  std::uint64_t bucket_bytes = 32U << 20;  ///< Gradients that travel together; a larger parameter is a bucket alone.
  ShardGranularity granularity = ShardGranularity::kTensor;
};

/// What the plan has to know of a parameter.
struct PlannedParameter {
  std::uint64_t numel = 0;
  std::uint64_t gradient_bytes = 0;
  bool whole = false;  ///< One rank owns all of it, whatever the granularity.
};

/// A range of a parameter's elements, in the order of its memory, that one rank owns.
struct ShardPiece {
  std::size_t parameter = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  int owner = 0;

  [[nodiscard]] std::uint64_t numel() const noexcept { return end - begin; }
  friend bool operator==(const ShardPiece&, const ShardPiece&) = default;
};

/// Parameters whose gradients travel together.
struct Bucket {
  std::vector<std::size_t> parameters;  ///< The last one first: about the order in which gradients come.
  std::vector<ShardPiece> pieces;       ///< In the order of parameters, then of elements. Each has one at least.
};

/// Which rank owns what, and what travels with what. A function of its arguments alone, without I/O: equal on all ranks
/// that have the same parameters and options.
class ShardPlan {
 public:
  /// @throws ConfigError for weights that are none, negative, not finite, or 0 in sum, and for buckets of no bytes.
  explicit ShardPlan(ShardPlanOptions options);

  /// Numbers `parameters` on from those that are planned, and cuts them into buckets of their own behind the others.
  /// Each goes to the ranks that have least for their weight so far; a rank of weight 0 gets nothing.
  void append(std::span<const PlannedParameter> parameters);

  [[nodiscard]] int world_size() const noexcept { return static_cast<int>(options_.weights.size()); }
  [[nodiscard]] const ShardPlanOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::size_t parameters() const noexcept { return bucket_of_.size(); }
  [[nodiscard]] const std::vector<Bucket>& buckets() const noexcept { return buckets_; }
  /// Number of the bucket of a parameter.
  [[nodiscard]] std::size_t bucket_of(std::size_t parameter) const { return bucket_of_.at(parameter); }
  /// What a rank owns of a parameter; null for nothing. No rank has two pieces of one.
  [[nodiscard]] const ShardPiece* piece_of(std::size_t parameter, int rank) const;
  /// Elements that a rank owns.
  [[nodiscard]] std::uint64_t owned_numel(int rank) const { return owned_.at(static_cast<std::size_t>(rank)); }

 private:
  void deal(std::size_t number, const PlannedParameter& parameter, Bucket& bucket);
  [[nodiscard]] double deficit(std::size_t rank) const;
  [[nodiscard]] std::size_t neediest() const;
  [[nodiscard]] std::vector<std::uint64_t> blocks_of_ranks(std::uint64_t numel) const;

  ShardPlanOptions options_;
  double weight_sum_ = 0.0;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;
  std::vector<std::uint64_t> owned_;  // By rank.
  std::uint64_t total_ = 0;           // Of all ranks, with the parameter that is being dealt.
};

}  // namespace spillway::optimizer

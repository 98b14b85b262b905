#include <spillway/optimizer/shard_plan.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <spillway/offload/error.hpp>
#include <spillway/optimizer/gradient_kernel.hpp>

namespace spillway::optimizer {

ShardPlan::ShardPlan(ShardPlanOptions options) : options_(std::move(options)) {
  if (options_.weights.empty()) {
    throw ConfigError("shard weights: there are none; give one for each rank");
  }
  for (std::size_t rank = 0; rank < options_.weights.size(); ++rank) {
    const double weight = options_.weights[rank];
    if (!(weight >= 0.0) || std::isinf(weight)) {
      throw ConfigError("shard weights: that of rank " + std::to_string(rank) + " is " + std::to_string(weight) +
                        "; wanted a finite number, 0 or more");
    }
    weight_sum_ += weight;
  }
  if (!(weight_sum_ > 0.0)) {
    throw ConfigError("shard weights: they sum to 0, so that nobody owns anything; give one rank more than 0");
  }
  if (options_.bucket_bytes == 0) {
    throw ConfigError("gradient buckets of 0 bytes hold nothing; the default is 32 MiB");
  }
  owned_.resize(options_.weights.size());
}

void ShardPlan::append(std::span<const PlannedParameter> parameters) {
  const std::size_t first = bucket_of_.size();
  bucket_of_.resize(first + parameters.size());
  std::uint64_t bytes = 0;
  bool open = false;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const PlannedParameter& parameter = parameters[i];
    if (!open || bytes + parameter.gradient_bytes > options_.bucket_bytes) {
      buckets_.emplace_back();
      bytes = 0;
      open = true;
    }
    bytes += parameter.gradient_bytes;
    bucket_of_[first + i] = buckets_.size() - 1;
    buckets_.back().parameters.push_back(first + i);
    deal(first + i, parameter, buckets_.back());
  }
}

double ShardPlan::deficit(std::size_t rank) const {
  return static_cast<double>(total_) * (options_.weights[rank] / weight_sum_) - static_cast<double>(owned_[rank]);
}

std::size_t ShardPlan::neediest() const {
  std::size_t best = options_.weights.size();
  for (std::size_t rank = 0; rank < options_.weights.size(); ++rank) {
    if (options_.weights[rank] > 0.0 && (best == options_.weights.size() || deficit(rank) > deficit(best))) {
      best = rank;
    }
  }
  return best;
}

const ShardPiece* ShardPlan::piece_of(std::size_t parameter, int rank) const {
  for (const ShardPiece& piece : buckets_[bucket_of(parameter)].pieces) {
    if (piece.parameter == parameter && piece.owner == rank) {
      return &piece;
    }
  }
  return nullptr;
}

void ShardPlan::deal(std::size_t number, const PlannedParameter& parameter, Bucket& bucket) {
  const std::uint64_t numel = parameter.numel;
  total_ += numel;
  if (options_.granularity == ShardGranularity::kTensor || parameter.whole || numel <= kSquaresBlockNumel) {
    const std::size_t owner = neediest();
    owned_[owner] += numel;
    bucket.pieces.push_back({number, 0, numel, static_cast<int>(owner)});
    return;
  }
  const std::vector<std::uint64_t> blocks = blocks_of_ranks(numel);
  std::uint64_t begin = 0;
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    const std::uint64_t end = std::min(numel, begin + blocks[rank] * kSquaresBlockNumel);
    if (end > begin) {
      owned_[rank] += end - begin;
      bucket.pieces.push_back({number, begin, end, static_cast<int>(rank)});
      begin = end;
    }
  }
}

/// How many blocks of a parameter each rank gets: what it lacks, rounded, as far as there are any; the rest goes to
/// those that lack most.
std::vector<std::uint64_t> ShardPlan::blocks_of_ranks(std::uint64_t numel) const {
  std::uint64_t left = (numel + kSquaresBlockNumel - 1) / kSquaresBlockNumel;
  std::vector<std::uint64_t> blocks(options_.weights.size());
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    const double wanted = std::max(0.0, std::round(deficit(rank) / static_cast<double>(kSquaresBlockNumel)));
    blocks[rank] = options_.weights[rank] > 0.0 ? std::min(left, static_cast<std::uint64_t>(wanted)) : 0;
    left -= blocks[rank];
  }
  for (; left > 0; --left) {
    // The last of those that lack most: the last block of a tensor is seldom a whole one.
    std::size_t best = neediest();
    const auto lack = [&](std::size_t rank) {
      return deficit(rank) - static_cast<double>(blocks[rank] * kSquaresBlockNumel);
    };
    for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
      best = options_.weights[rank] > 0.0 && lack(rank) >= lack(best) ? rank : best;
    }
    ++blocks[best];
  }
  return blocks;
}

}  // namespace spillway::optimizer

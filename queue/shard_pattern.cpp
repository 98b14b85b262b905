#include <algorithm>
#include <utility>

#include <spillway/offload/check.hpp>
#include <spillway/queue/shard_pattern.hpp>

namespace spillway::queue {

ShardPattern::ShardPattern(std::vector<std::int64_t> weights) : weights_(std::move(weights)), starts_{0} {
  for (const std::int64_t weight : weights_) {
    SPILLWAY_CHECK(weight >= 0, "a rank holds fewer than no rows");
    starts_.push_back(starts_.back() + weight);
  }
  SPILLWAY_CHECK(starts_.back() > 0, "no rank holds any row");
}

int ShardPattern::owner(std::int64_t number) const {
  const std::int64_t place = number % starts_.back();
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), place);
  return static_cast<int>(after - starts_.begin()) - 1;
}

std::int64_t ShardPattern::before(int rank, std::int64_t number) const {
  const auto index = static_cast<std::size_t>(rank);
  const std::int64_t place = number % starts_.back() - starts_[index];
  return number / starts_.back() * weights_[index] + std::clamp<std::int64_t>(place, 0, weights_[index]);
}

std::int64_t ShardPattern::most(int rank, std::int64_t rows) const {
  const std::int64_t weight = weights_[static_cast<std::size_t>(rank)];
  return rows / starts_.back() * weight + std::min(weight, rows % starts_.back());
}

}  // namespace spillway::queue

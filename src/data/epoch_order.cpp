#include <spillway/app/data/epoch_order.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

#include <spillway/app/data/counter_rng.hpp>

namespace spillway::app {
namespace {

constexpr std::uint32_t kShufflePurpose = 0x4F000000U;

}  // namespace

EpochOrder::EpochOrder(std::uint32_t samples, const BatchShape& shape, std::uint64_t seed, std::uint32_t epoch)
    : shape_(shape), order_(samples) {
  std::iota(order_.begin(), order_.end(), 0U);
  CounterRng rng({seed, kShufflePurpose, epoch, 0});
  for (std::uint32_t left = samples; left > 1; --left) {
    std::swap(order_[left - 1], order_[rng.below(left)]);
  }
}

std::uint64_t EpochOrder::steps() const noexcept {
  const std::uint64_t rounding = shape_.drop_last ? 0 : shape_.train_batch - 1;
  return (order_.size() + rounding) / shape_.train_batch;
}

std::span<const std::uint32_t> EpochOrder::micro_batch(std::uint64_t step, std::uint64_t rank,
                                                       std::uint64_t micro) const noexcept {
  const std::uint64_t first = step * shape_.train_batch;
  const std::uint64_t size = std::min<std::uint64_t>(shape_.train_batch, order_.size() - first);
  const std::uint64_t parts = shape_.world_size * shape_.accumulation;
  const std::uint64_t part = rank * shape_.accumulation + micro;
  // The first size % parts parts have one more.
  const std::uint64_t start = part * (size / parts) + std::min(part, size % parts);
  const std::uint64_t length = size / parts + (part < size % parts ? 1 : 0);
  return std::span(order_).subspan(first + start, length);
}

}  // namespace spillway::app

#include <spillway/offload/stripe_map.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <spillway/offload/check.hpp>
#include <spillway/offload/tier.hpp>

namespace spillway::offload {

// Smooth weighted round robin: in each step every path gains its weight, and the richest pays the whole round.
StripeMap::StripeMap(std::uint64_t unit_bytes, std::span<const unsigned> weights)
    : unit_bytes_(unit_bytes), slots_(weights.size()) {
  SPILLWAY_CHECK(unit_bytes > 0 && unit_bytes % kPageBytes == 0, "a stripe unit is a multiple of the page size");
  SPILLWAY_CHECK(!weights.empty(), "a space is spread over one file at least");
  std::int64_t round = 0;
  for (const unsigned weight : weights) {
    SPILLWAY_CHECK(weight > 0, "a path has a weight above 0");
    round += weight;
  }
  std::vector<std::int64_t> credit(weights.size(), 0);
  for (std::int64_t slot = 0; slot < round; ++slot) {
    for (std::size_t path = 0; path < weights.size(); ++path) {
      credit[path] += weights[path];
    }
    const auto richest = static_cast<std::size_t>(std::max_element(credit.begin(), credit.end()) - credit.begin());
    credit[richest] -= round;
    pattern_.push_back({static_cast<std::uint32_t>(richest), static_cast<std::uint32_t>(slots_[richest].size())});
    slots_[richest].push_back(static_cast<std::uint32_t>(slot));
  }
}

StripeMap::Place StripeMap::place(std::uint64_t offset) const noexcept {
  const std::uint64_t unit = offset / unit_bytes_;
  const std::uint64_t inside = offset % unit_bytes_;
  const Slot slot = pattern_[unit % pattern_.size()];
  const std::uint64_t unit_there = unit / pattern_.size() * weight(slot.path) + slot.rank;
  return {slot.path, unit_there * unit_bytes_ + inside, unit_bytes_ - inside};
}

std::uint64_t StripeMap::logical_offset(std::size_t path, std::uint64_t offset) const noexcept {
  const std::uint64_t unit = offset / unit_bytes_;
  const std::uint64_t pattern = unit / weight(path);
  const std::uint64_t slot = slots_[path][unit % weight(path)];
  return (pattern * pattern_.size() + slot) * unit_bytes_ + offset % unit_bytes_;
}

std::uint64_t StripeMap::path_bytes(std::size_t path, std::uint64_t bytes) const noexcept {
  const std::uint64_t pattern_bytes = pattern_.size() * unit_bytes_;
  const std::uint64_t rest = bytes % pattern_bytes;
  std::uint64_t total = bytes / pattern_bytes * weight(path) * unit_bytes_;
  for (const std::uint64_t slot : slots_[path]) {
    total += std::min(rest - std::min(rest, slot * unit_bytes_), unit_bytes_);
  }
  return total;
}

std::vector<unsigned> stripe_weights(std::span<const double> rates) {
  constexpr double kFinest = 16;  // The whole is divided no finer, so that a block of a few units uses every path.
  std::vector<unsigned> weights(rates.size(), 1);
  const double total = std::accumulate(rates.begin(), rates.end(), 0.0);
  if (!std::isfinite(total) || std::any_of(rates.begin(), rates.end(), [](double rate) { return !(rate > 0); })) {
    return weights;
  }
  unsigned common = 0;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    weights[i] = static_cast<unsigned>(std::max(1.0, std::round(rates[i] / total * kFinest)));
    common = std::gcd(common, weights[i]);
  }
  for (unsigned& weight : weights) {
    weight /= common;
  }
  return weights;
}

}  // namespace spillway::offload

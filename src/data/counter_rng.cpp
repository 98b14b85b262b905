#include <spillway/app/data/counter_rng.hpp>

#include <cmath>
#include <numbers>

namespace spillway::app {
namespace {

constexpr unsigned kRounds = 10;
constexpr std::array<std::uint32_t, 2> kMultipliers = {0xD2511F53U, 0xCD9E8D57U};
constexpr std::array<std::uint32_t, 2> kWeyl = {0x9E3779B9U, 0xBB67AE85U};

constexpr std::uint32_t high(std::uint64_t product) { return static_cast<std::uint32_t>(product >> 32U); }
constexpr std::uint32_t low(std::uint64_t product) { return static_cast<std::uint32_t>(product); }

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) noexcept {
  for (unsigned round = 0; round < kRounds; ++round) {
    const std::uint64_t first = std::uint64_t{kMultipliers[0]} * counter[0];
    const std::uint64_t second = std::uint64_t{kMultipliers[1]} * counter[2];
    counter = {high(second) ^ counter[1] ^ key[0], low(second), high(first) ^ counter[3] ^ key[1], low(first)};
    key = {key[0] + kWeyl[0], key[1] + kWeyl[1]};
  }
  return counter;
}

CounterRng::CounterRng(const StreamName& name) noexcept
    : key_{low(name.seed), high(name.seed)}, counter_{0, name.sample, name.epoch, name.purpose} {}

std::uint32_t CounterRng::bits() noexcept {
  if (used_ == block_.size()) {
    block_ = philox4x32(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return block_[used_++];
}

float CounterRng::uniform() noexcept { return static_cast<float>(bits() >> 8U) * 0x1p-24F; }

float CounterRng::uniform(float low_end, float high_end) noexcept { return low_end + (high_end - low_end) * uniform(); }

std::uint32_t CounterRng::below(std::uint32_t bound) noexcept {
  // Multiply and take the high word; products whose low word falls in the uneven rest are drawn again.
  // Source: Lemire 2019, "Fast random integer generation in an interval".
  std::uint64_t product = std::uint64_t{bits()} * bound;
  if (low(product) < bound) {
    const std::uint32_t rest = (0U - bound) % bound;
    while (low(product) < rest) {
      product = std::uint64_t{bits()} * bound;
    }
  }
  return high(product);
}

std::array<float, 2> CounterRng::normals() noexcept {
  // Box and Muller 1958; 1 - uniform() is never 0.
  const float radius = std::sqrt(-2.0F * std::log(1.0F - uniform()));
  const float angle = 2.0F * std::numbers::pi_v<float> * uniform();
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace spillway::app

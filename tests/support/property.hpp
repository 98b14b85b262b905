#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>

namespace spillway::test {

/// A seeded source of random choices that are the same on every machine (the standard's distributions are not).
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  /// Uniform in [0, bound). @param bound at least 1.
  std::uint64_t below(std::uint64_t bound);

  /// Uniform in [low, high], both included.
  std::uint64_t between(std::uint64_t low, std::uint64_t high);

  /// True in `parts` of `whole` cases.
  bool chance(std::uint64_t parts, std::uint64_t whole) { return below(whole) < parts; }

  /// Uniform in [0, 1).
  double unit();

  /// One of the choices. @param choices not empty.
  template <typename T>
  const T& pick(std::span<const T> choices) {
    return choices[static_cast<std::size_t>(below(choices.size()))];
  }

  /// For use with the standard's algorithms, such as std::shuffle.
  std::mt19937_64& engine() noexcept { return engine_; }

 private:
  std::mt19937_64 engine_;
};

/// Runs `body` once for each of `rounds` seeds and stops at the first that makes a GoogleTest assertion fail or throws;
/// the failure then names its seed. SPILLWAY_SEED=<that seed> in the environment replays that one round alone.
void for_random_seeds(int rounds, const std::function<void(Random&)>& body);

}  // namespace spillway::test

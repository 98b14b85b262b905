#pragma once

#include <array>
#include <cstdint>

namespace spillway::app {

/// Ten rounds of Philox4x32: maps a 128-bit counter to 128 random bits under a 64-bit key.
/// Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3".
[[nodiscard]] std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                      std::array<std::uint32_t, 2> key) noexcept;

/// What a stream of random numbers belongs to. Streams with different names are independent, so that the order in
/// which samples are made, and the thread that makes them, never change a number.
struct StreamName {
  std::uint64_t seed = 0;
  std::uint32_t purpose = 0;  ///< One of the constants of the caller: keeps shuffling apart from augmenting.
  std::uint32_t epoch = 0;
  std::uint32_t sample = 0;
};

/// A stream of random numbers that is a pure function of its name. Copyable; not shared between threads.
class CounterRng {
 public:
  explicit CounterRng(const StreamName& name) noexcept;

  [[nodiscard]] std::uint32_t bits() noexcept;
  /// Uniform in [0, 1), of 24 bits.
  [[nodiscard]] float uniform() noexcept;
  /// Uniform in [low, high); low where both are equal.
  [[nodiscard]] float uniform(float low, float high) noexcept;
  /// Uniform in 0 … bound - 1 without bias. `bound` is at least 1.
  [[nodiscard]] std::uint32_t below(std::uint32_t bound) noexcept;
  /// Two independent standard normal deviates.
  [[nodiscard]] std::array<float, 2> normals() noexcept;

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_{};
  unsigned used_ = 4;
};

}  // namespace spillway::app

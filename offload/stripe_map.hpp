#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spillway::offload {

/// How one linear space is spread over several files: in units, dealt to the files in a repeating pattern in which file
/// i gets weight i of every sum-of-weights units, as evenly interleaved as they allow. Pure arithmetic on offsets; with
/// one file every offset stays what it is.
class StripeMap {
 public:
  /// @param unit_bytes  a multiple of kPageBytes.
  /// @param weights  one for each file, each above 0.
  StripeMap(std::uint64_t unit_bytes, std::span<const unsigned> weights);

  struct Place {
    std::size_t path = 0;
    std::uint64_t offset = 0;  ///< In the file of that path.
    std::uint64_t bytes = 0;   ///< From there to the end of the unit: what lies together.
  };
  [[nodiscard]] Place place(std::uint64_t offset) const noexcept;
  /// The inverse of place().
  [[nodiscard]] std::uint64_t logical_offset(std::size_t path, std::uint64_t offset) const noexcept;
  /// How long the file of `path` must be to hold its part of the first `bytes`.
  [[nodiscard]] std::uint64_t path_bytes(std::size_t path, std::uint64_t bytes) const noexcept;

  [[nodiscard]] std::size_t paths() const noexcept { return slots_.size(); }
  [[nodiscard]] std::uint64_t unit_bytes() const noexcept { return unit_bytes_; }
  [[nodiscard]] unsigned weight(std::size_t path) const noexcept { return static_cast<unsigned>(slots_[path].size()); }
  /// Units in a pattern: the sum of the weights.
  [[nodiscard]] std::uint64_t pattern_units() const noexcept { return pattern_.size(); }

 private:
  struct Slot {
    std::uint32_t path;
    std::uint32_t rank;  // How many slots of the same path come before it in the pattern.
  };
  std::uint64_t unit_bytes_;
  std::vector<Slot> pattern_;
  std::vector<std::vector<std::uint32_t>> slots_;  // For each path, its slots in the pattern.
};

/// Small whole weights in proportion to `rates` (bytes per second), no path left out. Equal ones if a rate is not known
/// (0 or less).
[[nodiscard]] std::vector<unsigned> stripe_weights(std::span<const double> rates);

}  // namespace spillway::offload

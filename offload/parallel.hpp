#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace spillway::offload {

class ParallelArenas;

/// A half-open range of indices.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] std::uint64_t size() const noexcept { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

struct ParallelOptions {
  unsigned threads =
      0;  ///< At most so many work at once, the caller among them; 0 for one on each usable core, the most.
  unsigned nodes = 0;  ///< Groups of threads, each bound to a memory node; 0 for as many as the machine has.
};

/// Threads for loops over memory: arithmetic and copies, never I/O or anything else that waits.
///
/// A loop is cut into ranges whose bounds depend on its size alone, never on the number of threads. Where the machine
/// has several memory nodes, each node's threads take one contiguous share of the ranges, the same in every loop of
/// that size: memory that a node touched first stays near it. Safe to call from several threads; enter with no lock
/// held, because a thread that waits here may run a part of another loop.
class Parallel {
 public:
  using Body = std::function<void(Range)>;

  explicit Parallel(ParallelOptions options = {});
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;
  ~Parallel();

  /// Runs `body` on [0, grain), [grain, 2 * grain), … up to `size`, in any order and several at once; blocks until all
  /// have ended. Writes of the bodies are visible afterwards.
  /// @param grain at least 1. A loop of one range runs on the caller.
  /// @throws what a body throws (the first one; ranges that had not begun are left out then).
  void for_ranges(std::uint64_t size, std::uint64_t grain, const Body& body) const;

  [[nodiscard]] unsigned threads() const noexcept { return threads_; }
  [[nodiscard]] unsigned nodes() const noexcept;

 private:
  unsigned threads_;
  std::unique_ptr<ParallelArenas> arenas_;
};

}  // namespace spillway::offload

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spillway::offload {

class Uring;

/// The memory that is registered with one ring: pinned by the kernel once instead of at every transfer. What can't be
/// registered is remembered for the note and used all the same. Used by the ring's thread only.
class RegisteredMemory {
 public:
  /// @param sharers  rings that register the same memory: the kernel counts it once for each.
  void make_table(Uring& ring, unsigned sharers);
  void add(Uring& ring, std::span<std::byte> memory);
  /// Precondition: no transfer uses it. No effect on memory that was never added.
  void remove(Uring& ring, std::span<std::byte> memory);

  /// The slot of the registered piece that holds all of `memory`, if one does.
  [[nodiscard]] std::optional<int> slot_of(std::span<const std::byte> memory) const noexcept;
  /// False also where nothing was added.
  [[nodiscard]] bool all_registered() const noexcept { return !pieces_.empty() && refused_bytes_ == 0; }
  /// What was refused and what to do about it; empty if nothing was.
  [[nodiscard]] std::string note() const;

 private:
  struct Piece {
    std::span<std::byte> memory;
    int slot;  // -1: refused.
  };
  std::vector<Piece> pieces_;
  std::vector<int> free_slots_;
  std::uint64_t registered_bytes_ = 0;
  std::uint64_t refused_bytes_ = 0;
  unsigned sharers_ = 1;
  int refusal_ = 0;  // The last errno value.
};

}  // namespace spillway::offload

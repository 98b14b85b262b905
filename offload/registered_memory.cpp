#include <spillway/offload/registered_memory.hpp>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <spillway/offload/format_bytes.hpp>
#include <spillway/offload/uring.hpp>

namespace spillway::offload {
namespace {

constexpr int kSlots = 1024;
constexpr std::size_t kPieceBytes = std::size_t{1} << 30;  // The kernel takes no more at once.

bool contains(std::span<const std::byte> outer, std::span<const std::byte> inner) noexcept {
  return inner.data() >= outer.data() && inner.data() + inner.size() <= outer.data() + outer.size();
}

}  // namespace

void RegisteredMemory::make_table(Uring& ring, unsigned sharers) {
  sharers_ = sharers;
  refusal_ = ring.make_buffer_table(kSlots);
  for (int slot = kSlots - 1; refusal_ == 0 && slot >= 0; --slot) {
    free_slots_.push_back(slot);
  }
}

void RegisteredMemory::add(Uring& ring, std::span<std::byte> memory) {
  for (std::size_t begin = 0; begin < memory.size(); begin += kPieceBytes) {
    Piece piece{memory.subspan(begin, std::min(kPieceBytes, memory.size() - begin)), -1};
    if (!free_slots_.empty()) {
      const int error = ring.set_buffer(static_cast<unsigned>(free_slots_.back()), piece.memory);
      if (error == 0) {
        piece.slot = free_slots_.back();
        free_slots_.pop_back();
      } else {
        refusal_ = error;
      }
    }
    (piece.slot >= 0 ? registered_bytes_ : refused_bytes_) += piece.memory.size();
    pieces_.push_back(piece);
  }
}

void RegisteredMemory::remove(Uring& ring, std::span<std::byte> memory) {
  std::erase_if(pieces_, [&](const Piece& piece) {
    if (!contains(memory, piece.memory)) {
      return false;
    }
    if (piece.slot >= 0) {
      static_cast<void>(ring.set_buffer(static_cast<unsigned>(piece.slot), {}));
      free_slots_.push_back(piece.slot);
    }
    (piece.slot >= 0 ? registered_bytes_ : refused_bytes_) -= piece.memory.size();
    return true;
  });
}

std::optional<int> RegisteredMemory::slot_of(std::span<const std::byte> memory) const noexcept {
  for (const Piece& piece : pieces_) {
    if (piece.slot >= 0 && contains(piece.memory, memory)) {
      return piece.slot;
    }
  }
  return std::nullopt;
}

std::string RegisteredMemory::note() const {
  if (refused_bytes_ == 0) {
    return {};
  }
  std::string text = format_bytes(refused_bytes_) + " of buffers could not be registered with io_uring";
  if (refusal_ == 0) {
    return text + ": its table is full; transfers take more processor time";
  }
  text += ": " + std::generic_category().message(refusal_) + "; transfers take more processor time";
  if (refusal_ == ENOMEM) {
    constexpr std::uint64_t kKibibyte = 1024;
    constexpr std::uint64_t kRingBytes = std::uint64_t{1} << 20;  // The rings' own memory counts too.
    const std::uint64_t needed = (registered_bytes_ + refused_bytes_ + kRingBytes) * sharers_ / kKibibyte;
    text += ". `ulimit -l " + std::to_string(needed) + "` lets them be";
  }
  return text;
}

}  // namespace spillway::offload

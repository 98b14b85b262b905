#include <spillway/app/bench/memory_streams.hpp>

#include <span>

namespace spillway::app {
namespace {

constexpr std::uint64_t kPieces = 1 << 12;  // What a thread takes at once.
constexpr std::uint64_t kTiles = 128;       // Of a piece.

// The words of a block that belong to a tile.
std::span<std::uint64_t> part(const offload::AlignedBlock& block, std::uint64_t tile) {
  const std::span all(reinterpret_cast<std::uint64_t*>(block.bytes().data()), block.bytes().size() / 8);
  const std::uint64_t begin = all.size() * tile / (kPieces * kTiles);
  return all.subspan(begin, all.size() * (tile + 1) / (kPieces * kTiles) - begin);
}

}  // namespace

MemoryStreams::MemoryStreams(std::uint64_t read_bytes, const std::vector<std::uint64_t>& rewritten_bytes)
    : read_(read_bytes) {
  for (const std::uint64_t bytes : rewritten_bytes) {
    rewritten_.emplace_back(bytes);
  }
}

void MemoryStreams::pass() {
  parallel_.for_ranges(kPieces * kTiles, kTiles, [this](offload::Range tiles) {
    for (std::uint64_t tile = tiles.begin; tile < tiles.end; ++tile) {
      std::uint64_t any = 0;
      for (const std::uint64_t word : part(read_, tile)) {
        any |= word;
      }
      any = any == 1 ? 1 : 0;  // 0: values stay as they are, which nobody tells the compiler.
      for (const offload::AlignedBlock& block : rewritten_) {
        for (std::uint64_t& word : part(block, tile)) {
          word += any;
        }
      }
    }
  });
}

}  // namespace spillway::app

// Checksums, and what is said when something is wrong.
#include <array>
#include <cinttypes>
#include <cstdio>

#include <spillway/offload/block_store_state.hpp>
#include <spillway/offload/checksum.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::offload {
namespace {

std::string hexadecimal(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016" PRIx64, value);
  return text.data();
}

}  // namespace

std::uint64_t BlockStore::State::checksum(BlockId id, std::uint64_t generation,
                                          std::span<const std::byte> bytes) const {
  if (!options.verify_checksums) {
    return 0;  // Nobody will ask.
  }
  const std::array<std::uint64_t, 3> identity{name_hash, id.value, generation};
  return xxh3_64(bytes, xxh3_64(std::as_bytes(std::span(identity))));
}

void BlockStore::State::verify(BlockId id, const StoredBlock& block, std::span<const std::byte> bytes) const {
  if (!options.verify_checksums) {
    return;
  }
  const std::uint64_t got = checksum(id, block.generation, bytes);
  if (got != block.checksum) {
    throw Corruption(options.name + ": block '" + block.label + "' came back damaged from " +
                     tiers->swap_folders(block.offset, block.bytes) + ": generation " +
                     std::to_string(block.generation) + ", " + format_bytes(block.bytes) + " at offset " +
                     std::to_string(block.offset) + " of the swap space, checksum wanted " +
                     hexadecimal(block.checksum) + ", got " + hexadecimal(got) +
                     "; nothing of it was used. Check the drive and the memory, and resume from a checkpoint");
  }
}

void BlockStore::State::check_failed() {
  if (failure) {
    std::rethrow_exception(failure);
  }
  transfers.check_writes();
}

void BlockStore::State::rethrow_naming_block(const IoError& error) const {
  IoFailure failed = error.failure();
  for (const StoredBlock& block : blocks) {
    if (block.bytes > 0 && block.home == Tier::kDisk && failed.offset >= block.offset &&
        failed.offset - block.offset < page_ceil(block.bytes)) {
      failed.path += " (" + options.name + ", block '" + block.label + "')";
      break;
    }
  }
  if (dynamic_cast<const OutOfSpace*>(&error) != nullptr) {
    throw OutOfSpace(std::move(failed));
  }
  throw IoError(std::move(failed));
}

}  // namespace spillway::offload

// Checksums, and what is said when something is wrong.
#include <array>
#include <cinttypes>
#include <cstdio>

#include <spillway/offload/block_store_state.hpp>
#include <spillway/offload/checksum.hpp>
#include <spillway/offload/format_bytes.hpp>
#include <spillway/offload/transfer.hpp>

namespace spillway::offload {
namespace {

std::string hexadecimal(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016" PRIx64, value);
  return text.data();
}

}  // namespace

std::uint64_t BlockStore::State::seed(BlockId id, std::uint64_t generation) const {
  const std::array<std::uint64_t, 3> identity{name_hash, id.value, generation};
  return xxh3_64(std::as_bytes(std::span(identity)));
}

std::uint64_t BlockStore::State::checksum(BlockId id, std::uint64_t generation,
                                          std::span<const std::byte> bytes) const {
  return options.verify_checksums ? xxh3_64(bytes, seed(id, generation)) : 0;  // Nobody will ask.
}

BackgroundSums::SumPtr BlockStore::State::background_sum(BlockId id, std::uint64_t generation,
                                                         std::span<const std::byte> bytes) const {
  return options.verify_checksums && bytes.size() >= options.background_sum_bytes
             ? std::make_shared<BlockSum>(bytes, seed(id, generation))
             : nullptr;
}

// Sums without the lock; the block is the caller's, so that nobody changes what is known of it meanwhile.
void BlockStore::State::verify(Lock& lock, BlockId id, std::span<const std::byte> bytes, bool reused,
                               const BackgroundSums::SumPtr& made) const {
  if (!options.verify_checksums) {
    return;
  }
  const std::uint64_t generation = blocks[id.value].generation;
  const BackgroundSums::SumPtr still_written = transfers.sum_of(id, generation);
  std::uint64_t wanted = blocks[id.value].checksum;
  std::uint64_t got = 0;
  {
    const Unlocked unlocked(lock);
    wanted = still_written ? transfers.await(*still_written) : wanted;
    got = made ? transfers.await(*made) : checksum(id, generation, bytes);
  }
  if (got == wanted) {
    return;
  }
  const std::string subject = options.name + ": block '" + records[id.value].label + "' ";
  const std::string sums = ", checksum wanted " + hexadecimal(wanted) + ", got " + hexadecimal(got);
  if (reused) {
    throw Corruption(subject + "was changed in its buffer after it had been given back: generation " +
                     std::to_string(generation) + sums +
                     "; whoever had the last lease of it writes through a pointer that outlived the lease");
  }
  throw Corruption(subject + "came back damaged from " + tiers->swap_folders(blocks[id.value].offset, bytes.size()) +
                   ": generation " + std::to_string(generation) + ", " + format_bytes(bytes.size()) + " at offset " +
                   std::to_string(blocks[id.value].offset) + " of the swap space" + sums +
                   "; nothing of it was used. Check the drive and the memory, and resume from a checkpoint");
}

void BlockStore::State::check_failed() {
  if (failure) {
    throw_io_failure(*failure);
  }
  transfers.check_writes([this](const StoreTransfers::Write& write) {
    // What has ended well need not be remembered: a table of ended transfers would be larger than that of the blocks.
    StoredBlock& block = blocks[write.version.block.value];
    if (block.last_write.state() == write.ticket.state()) {
      block.last_write = {};
    }
    if (write.version.sum && block.generation == write.version.generation) {
      block.checksum = write.version.sum->value();
    }
  });
}

// Keeps the exception being handled for those who come, and wakes those who wait.
void BlockStore::State::fail_with_current_exception() {
  if (!failure) {
    try {
      throw;
    } catch (const IoError& error) {
      failure = std::make_shared<const IoFailure>(error.failure());
    } catch (const std::exception& error) {
      failure = std::make_shared<const IoFailure>(
          IoFailure{.operation = "submission", .path = options.name, .error_number = 0, .advice = error.what()});
    }
  }
  for (Waiter* waiter : waiting) {
    waiter->wake.notify_one();
  }
}

void BlockStore::State::rethrow_naming_block(const IoError& error) const {
  IoFailure failed = error.failure();
  {
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const BlockRecord& record = records[i];
      if (blocks[i].bytes > 0 && blocks[i].home == Tier::kDisk && failed.offset >= record.extent &&
          failed.offset - record.extent < room_bytes(blocks[i].bytes)) {
        failed.path += " (" + options.name + ", block '" + record.label + "')";
        break;
      }
    }
  }
  if (dynamic_cast<const OutOfSpace*>(&error) != nullptr) {
    throw OutOfSpace(std::move(failed));
  }
  throw IoError(std::move(failed));
}

}  // namespace spillway::offload

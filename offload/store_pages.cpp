// Pages of blocks on disk, past the ring.
#include <cstring>
#include <exception>
#include <vector>

#include <spillway/offload/block_store_state.hpp>
#include <spillway/offload/check.hpp>

namespace spillway::offload {
namespace {

/// Waits for all of them, whichever fails: the memory is the caller's again afterwards.
void wait_for_all(const StoreTransfers& transfers, const std::vector<Ticket>& reads) {
  std::exception_ptr failure;
  for (const Ticket& read : reads) {
    if (failure) {
      transfers.settle(read);
      continue;
    }
    try {
      transfers.wait(read, StallCause::kRead);
    } catch (const std::exception&) {
      failure = std::current_exception();
      transfers.settle(read);
    }
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace

void BlockStore::State::read_pages(std::span<const PageRun> runs) {
  Lock lock(mutex);
  check_failed();
  std::vector<Ticket> reads;
  reads.reserve(runs.size());
  try {
    for (const PageRun& run : runs) {
      const StoredBlock& block = at(run.block);
      SPILLWAY_CHECK(block.home == Tier::kDisk, "pages are read of a block that is in memory");
      SPILLWAY_CHECK(block.holders >= 0, "pages are read of a block that somebody writes");
      SPILLWAY_CHECK(run.offset % kPageBytes == 0 && run.memory.size() % kPageBytes == 0 &&
                         run.offset + run.memory.size() <= page_ceil(block.bytes),
                     "a run that is not of whole pages of its block");
      if (block.written) {
        reads.push_back(transfers.read(block.offset + run.offset, run.memory, {block.last_write}));
      } else {
        std::memset(run.memory.data(), 0, run.memory.size());
      }
    }
  } catch (...) {
    const Unlocked unlocked(lock);
    for (const Ticket& read : reads) {
      transfers.settle(read);
    }
    throw;
  }
  const Unlocked unlocked(lock);
  wait_for_all(transfers, reads);
}

}  // namespace spillway::offload

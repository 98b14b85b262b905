// What the engines cost by themselves (requests that move nothing) and what they move on the disk under $TMPDIR.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/engine_factory.hpp>
#include <spillway/offload/swap_file.hpp>
#include <spillway/offload/thread_engine.hpp>

namespace {

using namespace spillway::offload;
using Operation = IoRequest::Operation;

constexpr std::chrono::milliseconds kDeadline{60'000};
constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

void ignore(const std::string& /*line*/) {}

std::string scratch_folder() {
  const char* const folder = std::getenv("TMPDIR");
  return folder != nullptr ? folder : P_tmpdir;
}

// Submission, lanes, hand-over to a worker, completion and the wake-up of the one who waits.
void request_overhead(benchmark::State& state) {
  ThreadEngine engine({.block_bytes = kPageBytes, .queue_depth = 4, .threads = 1},
                      [](Operation, int, std::span<std::byte> memory, std::uint64_t) {
                        return static_cast<std::int64_t>(memory.size());
                      });
  const FileId file = engine.register_file(0, "nothing");
  const AlignedBlock memory(kPageBytes);
  for (auto _ : state) {
    engine.submit({.operation = Operation::kWrite, .file = file, .buffer = memory.bytes()}).wait(kDeadline);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(request_overhead)->UseRealTime();

// Cutting requests into chunks and taking them off the lanes.
void chunk_overhead(benchmark::State& state) {
  constexpr std::int64_t kChunks = 4096;
  ThreadEngine engine({.block_bytes = kPageBytes, .queue_depth = 4, .threads = 1},
                      [](Operation, int, std::span<std::byte> memory, std::uint64_t) {
                        return static_cast<std::int64_t>(memory.size());
                      });
  const FileId file = engine.register_file(0, "nothing");
  const AlignedBlock memory(kChunks * kPageBytes);
  for (auto _ : state) {
    engine.submit({.operation = Operation::kWrite, .file = file, .buffer = memory.bytes()}).wait(kDeadline);
  }
  state.SetItemsProcessed(state.iterations() * kChunks);
}
BENCHMARK(chunk_overhead)->UseRealTime();

bool brings_back(StorageEngine& engine, FileId file, const AlignedBlock& memory) {
  const AlignedBlock back(memory.bytes().size());
  std::fill(memory.bytes().begin(), memory.bytes().end(), std::byte{0x5A});
  engine.submit({.operation = Operation::kWrite, .file = file, .buffer = memory.bytes()}).wait(kDeadline);
  engine.submit({.operation = Operation::kRead, .file = file, .buffer = back.bytes()}).wait(kDeadline);
  return std::equal(memory.bytes().begin(), memory.bytes().end(), back.bytes().begin());
}

// A file of 64 MiB, transferred in requests of 8 MiB, all under way at once.
void transfer(benchmark::State& state, EngineChoice choice, Operation operation) {
  constexpr std::uint64_t kBytes = 64 * kMebibyte;
  constexpr std::uint64_t kRequestBytes = 8 * kMebibyte;
  try {
    SwapFile swap(scratch_folder(), ignore);
    swap.grow(kBytes);
    const AlignedBlock memory(kBytes);
    const auto engine = make_engine(choice, {}, scratch_folder(), ignore);
    engine->register_memory(memory.bytes());
    const FileId file = engine->register_file(swap.fd(), "the benchmark's file");
    if (!brings_back(*engine, file, memory)) {
      state.SkipWithError("what was written did not come back");
      return;
    }
    for (auto _ : state) {
      for (std::uint64_t offset = 0; offset < kBytes; offset += kRequestBytes) {
        static_cast<void>(engine->submit({.operation = operation,
                                          .file = file,
                                          .offset = offset,
                                          .buffer = memory.bytes().subspan(offset, kRequestBytes)}));
      }
      engine->drain(kDeadline);
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kBytes));
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}
BENCHMARK_CAPTURE(transfer, threads_read, EngineChoice::kThreads, Operation::kRead)->UseRealTime();
BENCHMARK_CAPTURE(transfer, threads_overwrite, EngineChoice::kThreads, Operation::kWrite)->UseRealTime();
#ifdef SPILLWAY_WITH_URING
BENCHMARK_CAPTURE(transfer, io_uring_read, EngineChoice::kIoUring, Operation::kRead)->UseRealTime();
BENCHMARK_CAPTURE(transfer, io_uring_overwrite, EngineChoice::kIoUring, Operation::kWrite)->UseRealTime();
#endif

}  // namespace

// What the block store adds to its engine, and what it hides. bytes_per_second is to be held against the transfers of
// engine_bench on the same folder ($TMPDIR); stall is the share of the time in which the caller waited for the disk.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/block_store.hpp>
#include <spillway/offload/checksum.hpp>
#include <spillway/offload/request_state.hpp>
#include <spillway/offload/thread_engine.hpp>

namespace {

using namespace spillway::offload;

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

std::string scratch_folder() {
  const char* const folder = std::getenv("TMPDIR");
  return folder != nullptr ? folder : P_tmpdir;
}

void ignore(const std::string& /*line*/) {}

/// A store with `count` blocks of `block_bytes` on disk.
struct Streamed {
  Streamed(std::shared_ptr<Tiers> shared_tiers, std::uint64_t count, std::uint64_t block_bytes, bool verify)
      : tiers(std::move(shared_tiers)),
        store(tiers, {.name = "bench",
                      .slot_bytes = block_bytes,
                      .disk_bytes = count * page_ceil(block_bytes),
                      .verify_checksums = verify}) {
    for (std::uint64_t i = 0; i < count; ++i) {
      ids.push_back(store.add(block_bytes, Tier::kDisk, "block " + std::to_string(i)));
    }
  }

  // One pass; `work` is done on each block's bytes.
  template <typename Work>
  void pass(Access access, Work work) {
    store.begin(ids, access);
    for (const BlockId id : ids) {
      Lease lease = store.acquire(id, access);
      work(lease.bytes());
      lease.release();
    }
    store.flush();
  }

  std::shared_ptr<Tiers> tiers;
  BlockStore store;
  std::vector<BlockId> ids;
};

bool brings_back(Streamed& streamed) {
  std::uint8_t value = 0;
  streamed.pass(Access::kOverwrite,
                [&](std::span<std::byte> bytes) { std::memset(bytes.data(), ++value, bytes.size()); });
  value = 0;
  bool good = true;
  streamed.pass(Access::kRead, [&](std::span<std::byte> bytes) {
    ++value;
    good = good && std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == std::byte{value}; });
  });
  return good;
}

void checksum(benchmark::State& state) {
  const AlignedBlock memory(static_cast<std::uint64_t>(state.range(0)));
  for (auto _ : state) {
    benchmark::DoNotOptimize(xxh3_64(memory.bytes()));
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(checksum)->Arg(64 << 10)->Arg(4 << 20)->Arg(64 << 20);

// A lease of a block that is in memory anyway.
void resident_lease(benchmark::State& state) {
  BlockStore store(std::make_shared<Tiers>(TiersOptions{}), {.name = "bench", .resident_bytes = kPageBytes});
  const BlockId id = store.add(kPageBytes, Tier::kHost, "block");
  for (auto _ : state) {
    benchmark::DoNotOptimize(store.acquire(id, Access::kReadWrite).bytes().data());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(resident_lease);

// A block's way through the ring where the transfers move nothing: the store's and the engine's book-keeping.
void streamed_block_overhead(benchmark::State& state) {
  constexpr std::uint64_t kCount = 256;
  auto engine = std::make_unique<ThreadEngine>(
      EngineOptions{.threads = 1}, [](IoRequest::Operation, int, std::span<std::byte> memory, std::uint64_t) {
        return static_cast<std::int64_t>(memory.size());
      });
  Streamed streamed(
      std::make_shared<Tiers>(TiersOptions{.nvme_path = scratch_folder(), .log = ignore}, std::move(engine)), kCount,
      kPageBytes, false);
  for (auto _ : state) {
    streamed.pass(Access::kReadWrite, [](std::span<std::byte>) {});
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kCount));
}
BENCHMARK(streamed_block_overhead)->UseRealTime();

/// Ends every transfer at once and moves nothing: what is left is the store.
class NoEngine final : public StorageEngine {
 public:
  FileId register_file(int /*fd*/, std::string /*label*/) override { return {}; }
  void register_memory(std::span<std::byte> /*memory*/) override {}
  void unregister_memory(std::span<std::byte> /*memory*/) noexcept override {}
  Ticket submit(const IoRequest& request, std::span<const Ticket> /*after*/) override {
    auto state = std::make_shared<RequestState>(spillway::IoFailure{.operation = "transfer",
                                                                    .path = "nowhere",
                                                                    .offset = request.offset,
                                                                    .bytes = request.buffer.size(),
                                                                    .error_number = 0,
                                                                    .advice = {}});
    state->finish(nullptr);
    return Ticket(std::move(state));
  }
  void expedite(const Ticket& /*ticket*/) override {}
  void drain(std::chrono::milliseconds /*deadline*/) override {}
  [[nodiscard]] EngineInfo info() const override { return {.name = "none", .note = {}}; }
};

constexpr std::uint64_t kRequests = 200'000;

// Seconds for kRequests blocks that are read, changed and written back, in passes over all blocks.
double seconds_for_requests(Streamed& streamed) {
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t done = 0; done < kRequests; done += streamed.ids.size()) {
    streamed.pass(Access::kReadWrite, [](std::span<std::byte> bytes) { benchmark::DoNotOptimize(bytes.data()); });
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::unique_ptr<Streamed> streamed_nowhere(std::uint64_t count) {
  auto streamed = std::make_unique<Streamed>(
      std::make_shared<Tiers>(TiersOptions{.log = ignore}, std::make_unique<NoEngine>()), count, kPageBytes, false);
  static_cast<void>(seconds_for_requests(*streamed));  // Every block is written once, and all is in place.
  return streamed;
}

// The cost of a request must not grow with the number of blocks: `growth` is the median over the iterations of its time
// with this many blocks through its time with 100, measured by turns.
void request_growth(benchmark::State& state) {
  const auto few = streamed_nowhere(100);
  const auto many = streamed_nowhere(static_cast<std::uint64_t>(state.range(0)));
  std::vector<double> ratios;
  for (auto _ : state) {
    const double reference = seconds_for_requests(*few);
    const double seconds = seconds_for_requests(*many);
    ratios.push_back(seconds / reference);
    state.SetIterationTime(seconds);
  }
  std::sort(ratios.begin(), ratios.end());
  state.counters["growth"] = ratios[ratios.size() / 2];
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kRequests));
}
BENCHMARK(request_growth)->RangeMultiplier(10)->Range(100, 100'000)->UseManualTime();

// 16 blocks of 4 MiB through a ring of 4. `rounds`: how often the client goes over a block's bytes meanwhile.
void pass(benchmark::State& state, Access access, bool verify, int rounds) {
  constexpr std::uint64_t kCount = 16;
  constexpr std::uint64_t kBlock = 4 * kMebibyte;
  try {
    Streamed streamed(std::make_shared<Tiers>(TiersOptions{.nvme_path = scratch_folder(), .log = ignore}), kCount,
                      kBlock, verify);
    if (!brings_back(streamed)) {
      state.SkipWithError("what was written did not come back");
      return;
    }
    Stats& stats = streamed.tiers->stats();
    const std::uint64_t stall_before = stats.stall_ns;
    const std::uint64_t moved_before = stats.read_bytes + stats.written_bytes;
    const auto start = std::chrono::steady_clock::now();
    for (auto _ : state) {
      streamed.pass(access, [rounds](std::span<std::byte> bytes) {
        for (int i = 0; i < rounds; ++i) {
          benchmark::DoNotOptimize(xxh3_64(bytes));
        }
      });
    }
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
    state.SetBytesProcessed(static_cast<std::int64_t>(stats.read_bytes + stats.written_bytes - moved_before));
    state.counters["stall"] = static_cast<double>(stats.stall_ns - stall_before) / elapsed.count();
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}
BENCHMARK_CAPTURE(pass, read, Access::kRead, true, 0)->UseRealTime();
BENCHMARK_CAPTURE(pass, read_unchecked, Access::kRead, false, 0)->UseRealTime();
BENCHMARK_CAPTURE(pass, overwrite, Access::kOverwrite, true, 0)->UseRealTime();
BENCHMARK_CAPTURE(pass, read_write, Access::kReadWrite, true, 0)->UseRealTime();
BENCHMARK_CAPTURE(pass, read_write_with_work, Access::kReadWrite, true, 8)->UseRealTime();

}  // namespace

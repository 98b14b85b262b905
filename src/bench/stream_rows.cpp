#include <spillway/app/bench/stream_rows.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>

#include <spillway/app/bench/cost_clock.hpp>
#include <spillway/app/bench/log_sinks.hpp>
#include <spillway/app/bench/turns.hpp>
#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/block_store.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/planner.hpp>

namespace spillway::app {
namespace {

using offload::Access;
using offload::BlockId;
using offload::BlockStore;
using offload::Tier;
using Word = std::uint64_t;

constexpr std::uint64_t kBlockBytesMax = std::uint64_t{8} << 20;
constexpr unsigned kSlots = 8;
constexpr unsigned kBudgetShare = 4;  // The working set is so many times the host budget.
constexpr unsigned kCalibrations = 3;
constexpr double kOverlapBar = 1.0 / 1.05;
constexpr double kChecksumBar = 0.95;

double seconds_of(const std::function<void()>& body) {
  const CostClock clock;
  body();
  return clock.elapsed().seconds;
}

/// A store with its tiers, and its blocks in the order of a pass.
struct Streamed {
  Streamed(const std::string& folder, std::uint64_t bytes, std::uint64_t host_bytes, bool verify)
      : block_bytes(std::min(kBlockBytesMax, host_bytes / (2 * kSlots) / offload::kPageBytes * offload::kPageBytes)) {
    const std::vector<std::uint64_t> sizes(bytes / block_bytes, block_bytes);
    const offload::Placement placement = offload::place({.name = "the bench",
                                                         .block_bytes = sizes,
                                                         .host_bytes = host_bytes,
                                                         .ring_slots = kSlots,
                                                         .disk_allowed = true});
    offload::TiersOptions options;
    options.host_bytes = host_bytes;
    options.nvme_path = folder;
    options.log = say_nothing;
    tiers = std::make_shared<offload::Tiers>(std::move(options));
    store = std::make_unique<BlockStore>(tiers, offload::BlockStoreOptions{.name = "the bench",
                                                                           .ring_slots = kSlots,
                                                                           .slot_bytes = block_bytes,
                                                                           .resident_bytes = placement.resident_bytes,
                                                                           .disk_bytes = placement.disk_bytes,
                                                                           .verify_checksums = verify});
    for (const Tier home : placement.home) {
      blocks.push_back(store->add(block_bytes, home, "block " + std::to_string(blocks.size())));
      streamed += home == Tier::kDisk ? 1 : 0;
    }
    pass(Access::kOverwrite, [](std::span<std::byte>) {});  // From here on there is something to read.
  }

  void pass(Access access, const std::function<void(std::span<std::byte>)>& work) {
    store->begin(blocks, access);
    for (const BlockId id : blocks) {
      offload::Lease lease = store->acquire(id, access);
      work(lease.bytes());
      lease.release();
    }
    store->flush();
  }
  void pass_block_by_block(Access access, const std::function<void(std::span<std::byte>)>& work) {
    for (const BlockId id : blocks) {
      offload::Lease lease = store->acquire(id, access);
      work(lease.bytes());
      lease.release();
      store->flush();
    }
  }

  [[nodiscard]] std::uint64_t moved_bytes() const { return tiers->stats().read_bytes + tiers->stats().written_bytes; }

  std::uint64_t block_bytes;
  std::shared_ptr<offload::Tiers> tiers;
  std::unique_ptr<BlockStore> store;
  std::vector<BlockId> blocks;
  std::size_t streamed = 0;
};

Word step(Word word) { return word * 6364136223846793005U + 1442695040888963407U; }

/// Work of a fixed amount on a block: each word goes through step() `passes` times, those of a first part once more.
class Work {
 public:
  /// So that `blocks` blocks take about `seconds`.
  Work(double seconds, std::uint64_t block_bytes, std::size_t blocks)
      : memory_(block_bytes * kSlots), block_bytes_(block_bytes) {
    passes_ = 1;
    double one_pass = alone(blocks);
    for (unsigned i = 1; i < kCalibrations; ++i) {
      one_pass = std::min(one_pass, alone(blocks));
    }
    const double passes = seconds / one_pass;
    passes_ = static_cast<unsigned>(passes);
    part_ = static_cast<std::size_t>((passes - passes_) * static_cast<double>(block_bytes / sizeof(Word)));
  }

  void operator()(std::span<std::byte> block) const {
    const std::span<Word> words(reinterpret_cast<Word*>(block.data()), block.size() / sizeof(Word));
    for (unsigned i = 0; i < passes_; ++i) {
      std::transform(words.begin(), words.end(), words.begin(), step);
    }
    std::transform(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(part_), words.begin(), step);
  }
  /// Seconds for that many blocks in memory, as many different ones as a ring has.
  [[nodiscard]] double alone(std::size_t blocks) const {
    return seconds_of([&] {
      for (std::size_t i = 0; i < blocks; ++i) {
        (*this)(memory_.bytes().subspan(i % kSlots * block_bytes_, block_bytes_));
      }
    });
  }
  /// Whether a block of zeros that was worked on `times` times is what `block` is, at either end.
  [[nodiscard]] bool is_result(std::span<const std::byte> block, unsigned times) const {
    const auto* const words = reinterpret_cast<const Word*>(block.data());
    const auto expected = [times](unsigned steps) {
      Word word = 0;
      for (std::uint64_t i = 0; i < std::uint64_t{steps} * times; ++i) {
        word = step(word);
      }
      return word;
    };
    return words[0] == expected(passes_ + (part_ > 0 ? 1 : 0)) &&
           words[block.size() / sizeof(Word) - 1] == expected(passes_);
  }

 private:
  offload::AlignedBlock memory_;
  const std::uint64_t block_bytes_;
  unsigned passes_ = 0;
  std::size_t part_ = 0;
};

struct OverlapRound {
  double transfers_s = 0.0;
  double work_s = 0.0;
  double overlapped_s = 0.0;
  double serial_s = 0.0;
};

void nothing(std::span<std::byte> /*block*/) {}

}  // namespace

std::vector<BenchRow> StreamRows::overlap_rows() const {
  Streamed streamed(options_.folder, options_.bytes, options_.bytes / kBudgetShare, true);
  const auto transfers = [&] { streamed.pass(Access::kReadWrite, nothing); };
  double transfers_s = seconds_of(transfers);
  for (unsigned i = 1; i < kCalibrations; ++i) {
    transfers_s = std::min(transfers_s, seconds_of(transfers));
  }
  const Work work(transfers_s, streamed.block_bytes, streamed.blocks.size());
  std::vector<OverlapRound> rounds(options_.rounds);
  by_turns(rounds.size(), {[&](std::size_t i) { rounds[i].transfers_s = seconds_of(transfers); },
                           [&](std::size_t i) { rounds[i].work_s = work.alone(streamed.blocks.size()); },
                           [&](std::size_t i) {
                             rounds[i].overlapped_s =
                                 seconds_of([&] { streamed.pass(Access::kReadWrite, std::cref(work)); });
                           },
                           [&](std::size_t i) {
                             rounds[i].serial_s =
                                 seconds_of([&] { streamed.pass_block_by_block(Access::kReadWrite, std::cref(work)); });
                           }});
  streamed.pass(Access::kRead, [&](std::span<const std::byte> block) {
    if (!work.is_result(block, 2 * options_.rounds)) {
      throw Error("the block store did not bring back what was worked on in " + options_.folder);
    }
  });
  std::vector<BenchRound> on;
  std::vector<BenchRound> off;
  for (const OverlapRound& round : rounds) {
    const double longer_s = std::max(round.transfers_s, round.work_s);
    const double ends_s = round.transfers_s / static_cast<double>(streamed.streamed);
    on.push_back({.value = round.overlapped_s - ends_s, .bound = longer_s, .peer = {}});
    off.push_back({.value = round.serial_s, .bound = longer_s, .peer = {}});
  }
  const BenchReference bound{.name = "the longer of transfers alone and work alone"};
  return {make_bench_row({.name = "overlap_on",
                          .unit = "s",
                          .bound = bound,
                          .bar = BenchBar{.ratio = kOverlapBar},
                          .smaller_is_better = true},
                         on),
          make_bench_row({.name = "overlap_off", .unit = "s", .bound = bound, .smaller_is_better = true}, off)};
}

BenchRow StreamRows::checksum_row(const std::string& name, bool write) const {
  const std::uint64_t host_bytes = options_.bytes / kBudgetShare;
  Streamed checked(options_.folder, options_.bytes, host_bytes, true);
  Streamed unchecked(options_.folder, options_.bytes, host_bytes, false);
  const Access access = write ? Access::kOverwrite : Access::kRead;
  const auto rate = [&](Streamed& streamed) {
    const std::uint64_t before = streamed.moved_bytes();
    const double seconds = seconds_of([&] { streamed.pass(access, nothing); });
    return static_cast<double>(streamed.moved_bytes() - before) / seconds / 1e9;
  };
  std::vector<BenchRound> rounds(options_.rounds);
  by_turns(rounds.size(), {[&](std::size_t i) { rounds[i].value = rate(checked); },
                           [&](std::size_t i) { rounds[i].bound = rate(unchecked); }});
  return make_bench_row({.name = name,
                         .unit = "GB/s",
                         .bound = {.name = "the same without checksums"},
                         .bar = BenchBar{.ratio = kChecksumBar}},
                        rounds);
}

}  // namespace spillway::app

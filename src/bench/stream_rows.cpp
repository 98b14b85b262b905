#include <spillway/app/bench/stream_rows.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

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
constexpr unsigned kTurns = 2;  // Of both sides of a row about checksums, in a round.
constexpr double kOverlapBar = 1.0 / 1.05;
constexpr double kChecksumBar = 0.95;

double seconds_of(const std::function<void()>& body) {
  const CostClock clock;
  body();
  return clock.elapsed().seconds;
}

std::shared_ptr<offload::Tiers> make_tiers(const std::string& folder, std::uint64_t host_bytes) {
  offload::TiersOptions options;
  options.host_bytes = host_bytes;
  options.nvme_path = folder;
  options.log = say_nothing;
  return std::make_shared<offload::Tiers>(std::move(options));
}

/// A store that may use all the host memory of its tiers, and its blocks in the order of a pass.
struct Streamed {
  Streamed(std::shared_ptr<offload::Tiers> the_tiers, std::uint64_t bytes, bool verify) : tiers(std::move(the_tiers)) {
    const std::uint64_t host_bytes = tiers->options().host_bytes;
    block_bytes = std::min(kBlockBytesMax, host_bytes / (2 * kSlots) / offload::kPageBytes * offload::kPageBytes);
    const std::vector<std::uint64_t> sizes(bytes / block_bytes, block_bytes);
    const offload::Placement placement = offload::place({.name = "the bench",
                                                         .block_bytes = sizes,
                                                         .host_bytes = host_bytes,
                                                         .ring_slots = kSlots,
                                                         .disk_allowed = true});
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

  std::shared_ptr<offload::Tiers> tiers;
  std::uint64_t block_bytes = 0;
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

void nothing(std::span<std::byte> /*block*/) {}

struct OverlapRound {
  double transfers_s = 0.0;
  double work_s = 0.0;
  double overlapped_s = 0.0;
  double serial_s = 0.0;
};

/// Rounds of transfers alone, as much work alone, both at once and, if that is wanted, one after the other, on the
/// blocks of one store: how fast the disk is differs from place to place.
class Overlap {
 public:
  Overlap(const StreamRows::Options& options, bool verify)
      : folder_(options.folder),
        rounds_(options.rounds),
        streamed_(make_tiers(options.folder, options.bytes / kBudgetShare), options.bytes, verify),
        work_(transfers_s(), streamed_.block_bytes, streamed_.blocks.size()) {}

  /// @throws Error where the blocks do not hold the result of all the work.
  void measure(bool serial) {
    std::vector<std::function<void(std::size_t)>> sides{
        [&](std::size_t i) { rounds_[i].transfers_s = seconds_of([&] { transfer(); }); },
        [&](std::size_t i) { rounds_[i].work_s = work_.alone(streamed_.blocks.size()); },
        [&](std::size_t i) {
          rounds_[i].overlapped_s = seconds_of([&] { streamed_.pass(Access::kReadWrite, std::cref(work_)); });
        }};
    if (serial) {
      sides.emplace_back([&](std::size_t i) {
        rounds_[i].serial_s = seconds_of([&] { streamed_.pass_block_by_block(Access::kReadWrite, std::cref(work_)); });
      });
    }
    by_turns(rounds_.size(), sides);
    const auto times = static_cast<unsigned>(rounds_.size()) * (serial ? 2 : 1);
    streamed_.pass(Access::kRead, [&](std::span<const std::byte> block) {
      if (!work_.is_result(block, times)) {
        throw Error("the block store did not bring back what was worked on in " + folder_);
      }
    });
  }

  [[nodiscard]] BenchRow row(const std::string& name, double OverlapRound::*side, bool less_the_ends,
                             std::optional<BenchBar> bar) const {
    std::vector<BenchRound> rounds;
    for (const OverlapRound& round : rounds_) {
      const double ends_s = less_the_ends ? round.transfers_s / static_cast<double>(streamed_.streamed) : 0.0;
      rounds.push_back({.value = round.*side - ends_s, .bound = std::max(round.transfers_s, round.work_s), .peer = {}});
    }
    return make_bench_row({.name = name,
                           .unit = "s",
                           .bound = {.name = "the longer of transfers alone and work alone"},
                           .bar = bar,
                           .smaller_is_better = true},
                          rounds);
  }

 private:
  void transfer() { streamed_.pass(Access::kReadWrite, nothing); }
  [[nodiscard]] double transfers_s() {
    double least_s = seconds_of([&] { transfer(); });
    for (unsigned i = 1; i < kCalibrations; ++i) {
      least_s = std::min(least_s, seconds_of([&] { transfer(); }));
    }
    return least_s;
  }

  const std::string folder_;
  std::vector<OverlapRound> rounds_;
  Streamed streamed_;
  const Work work_;
};

}  // namespace

std::vector<BenchRow> StreamRows::overlap_rows() const {
  std::vector<BenchRow> rows;
  {
    Overlap checked(options_, true);
    checked.measure(true);
    rows.push_back(checked.row("overlap_on", &OverlapRound::overlapped_s, true, BenchBar{.ratio = kOverlapBar}));
    rows.push_back(checked.row("overlap_off", &OverlapRound::serial_s, false, std::nullopt));
  }
  Overlap unchecked(options_, false);
  unchecked.measure(false);
  rows.push_back(unchecked.row("overlap_unchecked", &OverlapRound::overlapped_s, true, std::nullopt));
  return rows;
}

BenchRow StreamRows::checksum_row(const std::string& name, bool write) const {
  const std::uint64_t bytes = options_.bytes / 2;
  const auto tiers = make_tiers(options_.folder, bytes / kBudgetShare);
  const Access access = write ? Access::kOverwrite : Access::kRead;
  struct Side {
    double seconds = 0.0;
    double moved_gb = 0.0;
    [[nodiscard]] double rate() const { return moved_gb / seconds; }
  };
  // A store where that of the other side was before: the disk is not as fast in one place as in another.
  const auto turn = [&](Side& side, bool verify) {
    Streamed streamed(tiers, bytes, verify);
    const std::uint64_t before = streamed.moved_bytes();
    side.seconds += seconds_of([&] { streamed.pass(access, nothing); });
    side.moved_gb += static_cast<double>(streamed.moved_bytes() - before) / 1e9;
  };
  std::vector<BenchRound> rounds(options_.rounds);
  for (BenchRound& round : rounds) {
    Side checked;
    Side unchecked;
    by_turns(kTurns, {[&](std::size_t) { turn(checked, true); }, [&](std::size_t) { turn(unchecked, false); }});
    round.value = checked.rate();
    round.bound = unchecked.rate();
  }
  return make_bench_row({.name = name,
                         .unit = "GB/s",
                         .bound = {.name = "the same without checksums"},
                         .bar = BenchBar{.ratio = kChecksumBar}},
                        rounds);
}

}  // namespace spillway::app

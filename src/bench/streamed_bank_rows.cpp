#include <spillway/app/bench/streamed_bank_rows.hpp>

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include <spillway/app/bench/bare_loop.hpp>
#include <spillway/app/bench/cost_clock.hpp>
#include <spillway/app/bench/loss_sides.hpp>
#include <spillway/app/bench/streamed_bank.hpp>
#include <spillway/app/bench/turns.hpp>
#include <spillway/app/bench/uring_loop.hpp>
#include <spillway/app/probe/machine_probe.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::app {
namespace {

constexpr std::array<std::int64_t, 3> kQueryCounts{1, 8, 256};
constexpr std::int64_t kComputingQueries = 256;  // From here on the computation is the bound, not the disk.
constexpr double kDiskBar = 0.95;
constexpr double kDiskTolerance = 1e-3;
constexpr std::uint64_t kSpareBytes = std::uint64_t{256} << 20;  // Of memory, for all but the bank.

std::string row_name(std::int64_t queries) { return "disk_" + std::to_string(queries); }

/// The bank on disk and, where they are wanted, what it is held against.
class StreamedRows {
 public:
  explicit StreamedRows(const StreamedBankCase& about) : about_(about), streamed_(about.folder, about.bytes) {}

  std::vector<BenchRow> measure(std::int64_t queries) {
    const bool computes = queries >= kComputingQueries;
    computes ? find_resident() : find_loop();
    const at::Tensor k = bench_unit_rows(queries, StreamedBank::kDim, 2);
    const at::Tensor q = bench_unit_rows(queries, StreamedBank::kDim, 3);
    compare_losses(row_name(queries), streamed_loss(q, k, streamed_.bank()), streamed_.expected(q, k), kDiskTolerance);
    const double read_bytes = static_cast<double>(streamed_.read_bytes_per_scan());
    const auto all_bytes = static_cast<double>(about_.bytes);
    std::vector<BenchRound> rounds(about_.rounds);
    std::vector<BenchRound> stalls(about_.rounds);
    std::vector<std::function<void(std::size_t)>> sides{[&](std::size_t round) {
      const std::uint64_t stalled_ns = streamed_.stall_ns();
      const double seconds = seconds_of(q, k, streamed_);
      rounds[round].value = (computes ? all_bytes : read_bytes) / seconds / 1e9;
      stalls[round].value = static_cast<double>(streamed_.stall_ns() - stalled_ns) / 1e9 / seconds;
    }};
    if (computes && resident_) {
      static_cast<void>(seconds_of(q, k, *resident_));
      sides.emplace_back(
          [&](std::size_t round) { rounds[round].bound = all_bytes / seconds_of(q, k, *resident_) / 1e9; });
    } else if (!computes && loop_) {
      sides.emplace_back([&](std::size_t round) { rounds[round].bound = loop_->rate() / 1e9; });
    }
    by_turns(about_.rounds, sides);
    const BenchReference bound{.name = computes ? "the same bank in host memory" : "bare io_uring loop, fixed buffers",
                               .why_absent = computes ? why_no_resident_ : why_no_loop_};
    return {
        make_bench_row({.name = row_name(queries), .unit = "GB/s", .bound = bound, .bar = BenchBar{.ratio = kDiskBar}},
                       rounds),
        make_bench_row({.name = row_name(queries) + "_stall", .unit = "of time", .smaller_is_better = true}, stalls)};
  }

 private:
  static double seconds_of(const at::Tensor& q, const at::Tensor& k, StreamedBank& bank) {
    const CostClock clock;
    streamed_loss(q, k, bank.bank());
    return clock.elapsed().seconds;
  }
  void find_loop() {
    why_no_loop_ = uring_loop_unavailable();
    if (why_no_loop_.empty() && !loop_) {
      loop_.emplace(about_.folder, streamed_.read_bytes_per_scan(), IoDirection::kRead);
    }
  }
  void find_resident() {
    const std::uint64_t wanted = about_.bytes + kSpareBytes;
    if (const std::uint64_t there = available_memory_bytes(); !resident_ && there < wanted) {
      why_no_resident_ =
          "it takes " + offload::format_bytes(wanted) + " of memory, and there are " + offload::format_bytes(there);
    } else if (!resident_) {
      resident_ = std::make_unique<StreamedBank>("", about_.bytes);
    }
  }

  const StreamedBankCase about_;
  StreamedBank streamed_;
  std::optional<BareLoop> loop_;
  std::unique_ptr<StreamedBank> resident_;
  std::string why_no_loop_;
  std::string why_no_resident_;
};

/// Empty where memory and disk suffice for the bank itself.
std::string why_no_streamed_bank(const StreamedBankCase& about) {
  const std::uint64_t memory = StreamedBank::host_bytes(about.bytes) + kSpareBytes;
  if (const std::uint64_t there = available_memory_bytes(); there < memory) {
    return "it takes " + offload::format_bytes(memory) + " of memory, and there are " + offload::format_bytes(there);
  }
  std::error_code failure;
  const std::filesystem::space_info space = std::filesystem::space(about.folder, failure);
  if (!failure && space.available < 2 * about.bytes) {  // Otherwise the swap file says what is wrong with the folder.
    return "it takes " + offload::format_bytes(2 * about.bytes) + " in " + about.folder + ", and there are " +
           offload::format_bytes(space.available);
  }
  return {};
}

}  // namespace

std::vector<std::string> streamed_bank_row_names() {
  std::vector<std::string> names;
  for (const std::int64_t queries : kQueryCounts) {
    names.push_back(row_name(queries));
    names.push_back(row_name(queries) + "_stall");
  }
  return names;
}

void measure_streamed_bank(const StreamedBankCase& about, const std::function<bool(const std::string& name)>& wanted,
                           const std::function<void(std::vector<BenchRow> rows)>& keep) {
  const std::string why = why_no_streamed_bank(about);
  std::optional<StreamedRows> rows;
  for (const std::int64_t queries : kQueryCounts) {
    const std::string name = row_name(queries);
    if (!wanted(name) && !wanted(name + "_stall")) {
      continue;
    }
    if (!why.empty()) {
      keep({absent_bench_row({.name = name, .unit = "GB/s", .bar = BenchBar{.ratio = kDiskBar}}, why),
            absent_bench_row({.name = name + "_stall", .unit = "of time"}, why)});
      continue;
    }
    if (!rows) {
      rows.emplace(about);
    }
    keep(rows->measure(queries));
  }
}

}  // namespace spillway::app

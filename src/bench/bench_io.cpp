#include <spillway/app/bench/bench_io.hpp>

#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include <spillway/app/bench/bench_report.hpp>
#include <spillway/app/bench/fio_peer.hpp>
#include <spillway/app/bench/uring_loop.hpp>
#include <spillway/app/report/summary.hpp>
#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/engine_factory.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>
#include <spillway/offload/swap_file.hpp>

namespace spillway::app {
namespace {

using offload::AlignedBlock;
using offload::SwapFile;
using offload::Ticket;
using Operation = offload::IoRequest::Operation;

constexpr std::uint64_t kRequestBytes = std::uint64_t{8} << 20;  // A block of the store.
constexpr std::size_t kSlots = 8;                                // Its ring of staging buffers.
constexpr std::uint64_t kMemoryBytes = kRequestBytes * kSlots;
constexpr std::uint64_t kBytesMin = kMemoryBytes;
constexpr offload::EngineOptions kEngine{};
constexpr double kUnit = 1e9;
constexpr double kBar = 0.9;
constexpr std::chrono::milliseconds kDeadline{60'000};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void fill(std::span<std::byte> memory) {
  std::mt19937_64 random(1);  // What a disk could compress would flatter it.
  for (std::size_t i = 0; i + sizeof(std::uint64_t) <= memory.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t value = random();
    std::copy_n(reinterpret_cast<const std::byte*>(&value), sizeof value, memory.data() + i);
  }
}

void ignore(const std::string& /*line*/) {}

std::string file_system(const std::string& folder) {
  struct statfs status {};
  if (::statfs(folder.c_str(), &status) != 0) {
    return "unknown";
  }
  switch (static_cast<std::uint32_t>(status.f_type)) {
    case 0xEF53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683E:
      return "btrfs";
    case 0x01021994:
      return "tmpfs";
    case 0x794C7630:
      return "overlay";
    default: {
      std::array<char, 16> text{};
      std::snprintf(text.data(), text.size(), "0x%x", static_cast<std::uint32_t>(status.f_type));
      return text.data();
    }
  }
}

void check(const BenchIoOptions& options) {
  if (options.bytes < kBytesMin) {
    throw ConfigError("spillway bench io --bytes: " + offload::format_bytes(options.bytes) +
                      " is too little; at least " + offload::format_bytes(kBytesMin) + " tell something");
  }
  if (options.rounds == 0) {
    throw ConfigError("spillway bench io: at least one round is needed");
  }
  if (options.json.empty()) {
    return;
  }
  // Said now and not after minutes of measuring.
  const std::filesystem::path folder = std::filesystem::absolute(options.json).parent_path();
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw IoError({.operation = "open",
                   .path = options.json,
                   .offset = 0,
                   .bytes = 0,
                   .error_number = errno,
                   .advice = "give --json a file in a folder that exists and can be written to"});
  }
}

class IoBench {
 public:
  explicit IoBench(const BenchIoOptions& options)
      : options_(options),
        bytes_(options.bytes / kRequestBytes * kRequestBytes),
        bound_{.name = "bare io_uring loop, huge pages, fixed buffers", .why_absent = uring_loop_unavailable()},
        peer_{.name = "fio, io_uring, ordinary pages", .why_absent = fio_unavailable()},
        memory_(kMemoryBytes),
        file_(options.nvme_path, say) {
    fill(memory_.bytes());
    file_.grow(bytes_);
    check_engine();
    measure_engine(file_, true);  // From here on it is overwritten.
  }

  BenchRow row(const std::string& name, bool write, std::optional<double> bar) {
    return rounds(name, write, bar, [this](const Measurement& measure) { return measure(file_); });
  }
  // In preallocated files that were never written, a new one for each measurement.
  BenchRow first_write_row() {
    return rounds("first_write", true, std::nullopt, [this](const Measurement& measure) {
      SwapFile fresh(options_.nvme_path, ignore);
      fresh.grow(bytes_);
      return measure(fresh);
    });
  }

  [[nodiscard]] Json machine() const {
    Json machine = describe_machine();
    auto& members = *machine.get_if<Json::Object>();
    members.emplace_back("file_system", file_system(options_.nvme_path));
    members.emplace_back("bytes", bytes_);
    members.emplace_back("rounds", std::uint64_t{options_.rounds});
    members.emplace_back("engine", info_.name);
    members.emplace_back("fixed_buffers", info_.fixed_buffers);
    members.emplace_back("direct_io", file_.direct());
    members.emplace_back("huge_page_bytes", memory_.huge_page_bytes());
    return machine;
  }
  [[nodiscard]] std::string heading() const {
    return "Disk under " + options_.nvme_path + " (" + file_system(options_.nvme_path) +
           "): " + offload::format_bytes(bytes_) + " in chunks of 1 MiB, depth 32, " + std::to_string(options_.rounds) +
           " rounds; engine " + info_.name + (info_.fixed_buffers ? " with fixed buffers" : "") +
           (info_.note.empty() ? "" : " (" + info_.note + ")") + ".\n";
  }

 private:
  using Measurement = std::function<double(const SwapFile&)>;

  // The store's way: blocks one after the other through a ring of buffers, each waited for before its buffer is used
  // again.
  double measure_engine(const SwapFile& file, bool write) {
    const auto engine = offload::make_engine(offload::EngineChoice::kAuto, kEngine, options_.nvme_path, ignore);
    engine->register_memory(memory_.bytes());
    const offload::FileId id = engine->register_file(file.fd(), "the benchmark's file in " + options_.nvme_path);
    info_ = engine->info();
    const auto wait = [&engine](const Ticket& ticket) {
      if (ticket) {
        engine->expedite(ticket);
        ticket.wait(kDeadline);
      }
    };
    std::array<Ticket, kSlots> tickets;
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t offset = 0; offset < bytes_; offset += kRequestBytes) {
      const std::size_t slot = offset / kRequestBytes % kSlots;
      wait(tickets.at(slot));
      tickets.at(slot) = engine->submit({.operation = write ? Operation::kWrite : Operation::kRead,
                                         .file = id,
                                         .offset = offset,
                                         .buffer = memory_.bytes().subspan(slot * kRequestBytes, kRequestBytes)});
    }
    std::for_each(tickets.begin(), tickets.end(), wait);
    return static_cast<double>(bytes_) / seconds_since(start);
  }

  // Nothing is measured that does not work: what is written has to come back.
  void check_engine() {
    const auto engine = offload::make_engine(offload::EngineChoice::kAuto, kEngine, options_.nvme_path, say);
    const offload::FileId id = engine->register_file(file_.fd(), "the benchmark's file in " + options_.nvme_path);
    const std::span<std::byte> out = memory_.bytes().first(kRequestBytes);
    const AlignedBlock back(kRequestBytes);
    const Ticket written = engine->submit({.operation = Operation::kWrite, .file = id, .offset = 0, .buffer = out});
    engine->submit({.operation = Operation::kRead, .file = id, .offset = 0, .buffer = back.bytes()}, {&written, 1})
        .wait(kDeadline);
    if (!std::equal(out.begin(), out.end(), back.bytes().begin())) {
      throw Error("the storage engine did not bring back what it had written under " + options_.nvme_path);
    }
  }

  double measure_loop(const SwapFile& file, bool write) {
    const double seconds = run_uring_loop({.fd = file.fd(),
                                           .write = write,
                                           .bytes = bytes_,
                                           .block_bytes = kEngine.block_bytes,
                                           .depth = kEngine.queue_depth},
                                          memory_.bytes());
    return static_cast<double>(bytes_) / seconds;
  }

  double measure_fio(const SwapFile& file, bool write) {
    return run_fio({.fd = file.fd(),
                    .write = write,
                    .bytes = bytes_,
                    .block_bytes = kEngine.block_bytes,
                    .depth = kEngine.queue_depth});
  }

  // The three by turns, beginning with another one in each round: none of them is always the first after the others.
  BenchRow rounds(const std::string& name, bool write, std::optional<double> bar,
                  const std::function<double(const Measurement&)>& with_file) {
    std::vector<BenchRound> rounds(options_.rounds);
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      for (std::size_t turn = 0; turn < 3; ++turn) {
        switch ((i + turn) % 3) {
          case 0:
            rounds[i].value = with_file([&](const SwapFile& file) { return measure_engine(file, write) / kUnit; });
            break;
          case 1:
            if (bound_.why_absent.empty()) {
              rounds[i].bound = with_file([&](const SwapFile& file) { return measure_loop(file, write) / kUnit; });
            }
            break;
          default:
            if (peer_.why_absent.empty()) {
              rounds[i].peer = with_file([&](const SwapFile& file) { return measure_fio(file, write) / kUnit; });
            }
        }
      }
    }
    return make_bench_row(name, "GB/s", bound_, peer_, bar, rounds);
  }

  static void say(const std::string& line) { std::fprintf(stderr, "spillway: %s\n", line.c_str()); }

  const BenchIoOptions options_;
  const std::uint64_t bytes_;
  const BenchReference bound_;
  const BenchReference peer_;
  AlignedBlock memory_;
  SwapFile file_;
  offload::EngineInfo info_;
};

}  // namespace

int run_bench_io(const BenchIoOptions& options) {
  check(options);
  IoBench bench(options);
  std::vector<BenchRow> rows;
  rows.push_back(bench.row("read", false, kBar));
  rows.push_back(bench.row("overwrite", true, kBar));
  rows.push_back(bench.first_write_row());
  std::printf("%s%s", bench.heading().c_str(), bench_table(rows).c_str());
  if (!options.json.empty()) {
    write_json_file(options.json, bench_json("io", bench.machine(), rows));
  }
  return 0;
}

}  // namespace spillway::app

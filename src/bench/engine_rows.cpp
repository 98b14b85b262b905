#include <spillway/app/bench/engine_rows.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <random>
#include <span>

#include <spillway/app/bench/fio_peer.hpp>
#include <spillway/app/bench/log_sinks.hpp>
#include <spillway/app/bench/turns.hpp>
#include <spillway/app/bench/uring_loop.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::app {
namespace {

constexpr double kUnit = 1e9;
constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
constexpr double kBoundBar = 0.97;
constexpr double kCpuBar = 4.0;
constexpr std::uint64_t kTuningBytesMax = std::uint64_t{1} << 30;
constexpr unsigned kTuningPasses = 2;
constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

void fill(std::span<std::byte> memory) {
  std::mt19937_64 random(1);  // What a disk could compress would flatter it.
  for (std::size_t i = 0; i + sizeof(std::uint64_t) <= memory.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t value = random();
    std::copy_n(reinterpret_cast<const std::byte*>(&value), sizeof value, memory.data() + i);
  }
}

double rate(const IoJob& job, const IoCost& cost) { return static_cast<double>(job.bytes) / cost.seconds / kUnit; }

double cpu_s_per_gib(const IoJob& job, const IoCost& cost) {
  return cost.cpu_s * kGibibyte / static_cast<double>(job.bytes);
}

BenchReference reference(const char* name, std::string why_absent) {
  return {.name = name, .why_absent = std::move(why_absent)};
}

}  // namespace

EngineRows::EngineRows(Options options)
    : options_(std::move(options)),
      memory_(EngineSide::kMemoryBytes),
      file_(options_.folder, say_on_stderr),
      engine_(options_.folder, memory_.bytes()),
      bound_(reference("bare io_uring loop, huge pages, fixed buffers", uring_loop_unavailable())),
      fio_(reference("fio, io_uring, huge pages", fio_unavailable())) {
  fill(memory_.bytes());
  file_.grow(options_.bytes);
  engine_.check(file_.fd());
  engine_.measure(job(IoDirection::kWrite));  // From here on it is overwritten.
}

IoJob EngineRows::job(IoDirection direction) const {
  return {.fd = file_.fd(), .direction = direction, .bytes = options_.bytes};
}

BenchRow EngineRows::row(const std::string& name, IoDirection direction) {
  const IoJob task = job(direction);
  std::vector<BenchRound> rounds(options_.rounds);
  std::vector<std::function<void(std::size_t)>> sides{
      [&](std::size_t round) { rounds[round].value = rate(task, engine_.measure(task)); }};
  if (bound_.why_absent.empty()) {
    sides.emplace_back(
        [&](std::size_t round) { rounds[round].bound = rate(task, run_uring_loop(task, memory_.bytes())); });
  }
  if (fio_.why_absent.empty()) {
    sides.emplace_back([&](std::size_t round) { rounds[round].peer = run_fio(task) / kUnit; });
  }
  by_turns(options_.rounds, sides);
  return make_bench_row(
      {.name = name, .unit = "GB/s", .bound = bound_, .peer = fio_, .bar = BenchBar{.ratio = kBoundBar}}, rounds);
}

BenchRow EngineRows::first_write_row() {
  std::vector<BenchRound> rounds(options_.rounds);
  const auto fresh = [this](const auto& measure) {
    offload::SwapFile file(options_.folder, say_nothing);
    file.grow(options_.bytes);
    IoJob task = job(IoDirection::kWrite);
    task.fd = file.fd();
    return measure(task);
  };
  std::vector<std::function<void(std::size_t)>> sides{[&](std::size_t round) {
    rounds[round].value = fresh([&](const IoJob& task) { return rate(task, engine_.measure(task)); });
  }};
  if (bound_.why_absent.empty()) {
    sides.emplace_back([&](std::size_t round) {
      rounds[round].bound = fresh([&](const IoJob& task) { return rate(task, run_uring_loop(task, memory_.bytes())); });
    });
  }
  if (fio_.why_absent.empty()) {
    sides.emplace_back([&](std::size_t round) {
      rounds[round].peer = fresh([](const IoJob& task) { return run_fio(task) / kUnit; });
    });
  }
  by_turns(options_.rounds, sides);
  return make_bench_row({.name = "first_write", .unit = "GB/s", .bound = bound_, .peer = fio_}, rounds);
}

BenchRow EngineRows::noise_row(const std::string& name, IoDirection direction) {
  if (!fio_.why_absent.empty()) {
    throw Error(name + ": " + fio_.why_absent);
  }
  const IoJob task = job(direction);
  std::vector<BenchRound> rounds(options_.rounds);
  by_turns(options_.rounds, {[&](std::size_t round) { rounds[round].value = run_fio(task) / kUnit; },
                             [&](std::size_t round) { rounds[round].peer = run_fio(task) / kUnit; }});
  return make_bench_row({.name = name, .unit = "GB/s", .peer = fio_}, rounds);
}

IoJob EngineRows::tuned_job(IoDirection direction) {
  constexpr std::array<std::pair<std::uint64_t, unsigned>, 8> kCandidates{{{kMebibyte / 2, 32},
                                                                           {kMebibyte, 32},
                                                                           {2 * kMebibyte, 16},
                                                                           {2 * kMebibyte, 32},
                                                                           {4 * kMebibyte, 8},
                                                                           {4 * kMebibyte, 16},
                                                                           {8 * kMebibyte, 4},
                                                                           {8 * kMebibyte, 8}}};
  IoJob best = job(direction);
  double least_s = std::numeric_limits<double>::infinity();
  for (unsigned pass = 0; pass < kTuningPasses; ++pass) {
    for (const auto& [block_bytes, depth] : kCandidates) {
      IoJob task = job(direction);
      task.bytes = std::min(task.bytes, kTuningBytesMax);
      task.block_bytes = block_bytes;
      task.depth = depth;
      if (const double seconds = engine_.measure(task).seconds; seconds < least_s) {
        least_s = seconds;
        best = task;
      }
    }
  }
  best.bytes = options_.bytes;
  return best;
}

void EngineRows::start_deepspeed() {
  if (deepspeed_tried_) {
    return;
  }
  deepspeed_tried_ = true;
  deepspeed_.why_absent = DeepSpeedPeer::unavailable(options_.peers_folder);
  if (!deepspeed_.why_absent.empty()) {
    return;
  }
  try {
    deepspeed_side_ = std::make_unique<DeepSpeedPeer>(options_.peers_folder);
    deepspeed_.name = deepspeed_side_->name();
  } catch (const Error& error) {
    deepspeed_.why_absent = error.what();
  }
}

// False where it is not there, or fails at its first transfers: the rows say so then.
bool EngineRows::tune_deepspeed(const IoJob& task, DeepSpeedSetting& setting) {
  if (deepspeed_side_ == nullptr) {
    return false;
  }
  try {
    setting = deepspeed_side_->best_setting(task);
  } catch (const Error& error) {
    deepspeed_.why_absent = error.what();
    deepspeed_side_.reset();
    return false;
  }
  settings_.emplace_back(task.direction == IoDirection::kRead ? "deepspeed_read" : "deepspeed_overwrite",
                         describe(setting));
  return true;
}

std::vector<EngineRows::Round> EngineRows::tuned_rounds(const IoJob& task, bool beside_deepspeed) {
  std::vector<Round> rounds(options_.rounds);
  std::vector<std::function<void(std::size_t)>> sides{
      [&](std::size_t round) { rounds[round].value = engine_.measure(task); }};
  if (bound_.why_absent.empty()) {
    sides.emplace_back([&](std::size_t round) { rounds[round].bound = run_uring_loop(task, memory_.bytes()); });
  }
  DeepSpeedSetting setting;
  if (beside_deepspeed && tune_deepspeed(task, setting)) {
    sides.emplace_back([&](std::size_t round) { rounds[round].deepspeed = deepspeed_side_->measure(task, setting); });
  }
  by_turns(options_.rounds, sides);
  return rounds;
}

std::vector<BenchRow> EngineRows::tuned_rows(const std::string& name, IoDirection direction,
                                             std::optional<double> peer_bar) {
  if (peer_bar) {
    start_deepspeed();
  }
  const IoJob task = tuned_job(direction);
  settings_.emplace_back(name + "_tuned", "chunks of " + offload::format_bytes(task.block_bytes) + ", depth " +
                                              std::to_string(task.depth));
  const std::vector<Round> rounds = tuned_rounds(task, peer_bar.has_value());
  const auto project = [&](double (*figure)(const IoJob&, const IoCost&), bool bound, bool peer) {
    std::vector<BenchRound> projected;
    for (const Round& round : rounds) {
      BenchRound& made =
          projected.emplace_back(BenchRound{.value = figure(task, round.value), .bound = {}, .peer = {}});
      if (bound && round.bound) {
        made.bound = figure(task, *round.bound);
      }
      if (peer && round.deepspeed) {
        made.peer = figure(task, *round.deepspeed);
      }
    }
    return projected;
  };
  std::vector<BenchRow> rows{
      make_bench_row({.name = name + "_tuned", .unit = "GB/s", .bound = bound_, .bar = BenchBar{.ratio = kBoundBar}},
                     project(rate, true, false))};
  if (peer_bar) {
    rows.push_back(make_bench_row({.name = name + "_deepspeed",
                                   .unit = "GB/s",
                                   .peer = deepspeed_,
                                   .bar = BenchBar{.ratio = *peer_bar, .to = BenchBar::To::kPeer}},
                                  project(rate, false, true)));
    rows.push_back(make_bench_row({.name = name + "_cpu",
                                   .unit = "CPU s/GiB",
                                   .bound = bound_,
                                   .peer = deepspeed_,
                                   .bar = BenchBar{.ratio = kCpuBar, .to = BenchBar::To::kPeer},
                                   .smaller_is_better = true},
                                  project(cpu_s_per_gib, true, true)));
  }
  return rows;
}

Json::Object EngineRows::facts() const {
  const offload::EngineInfo& info = engine_.info();
  Json::Object facts{{"engine", info.name},
                     {"fixed_buffers", info.fixed_buffers},
                     {"direct_io", file_.direct()},
                     {"huge_page_bytes", memory_.huge_page_bytes()}};
  facts.insert(facts.end(), settings_.begin(), settings_.end());
  return facts;
}

std::string EngineRows::engine_line() const {
  const offload::EngineInfo& info = engine_.info();
  return "engine " + info.name + (info.fixed_buffers ? " with fixed buffers" : "") +
         (info.note.empty() ? "" : " (" + info.note + ")");
}

}  // namespace spillway::app

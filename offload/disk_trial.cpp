#include <spillway/offload/disk_trial.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::offload {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kFileBytes = 64 * kMiB;
constexpr std::uint64_t kSmallFileBytes = 16 * kMiB;
constexpr std::uint64_t kRequestBytes = 4 * kMiB;  // As large as the largest chunk.
constexpr std::uint64_t kMemoryBytes = 32 * kMiB;
constexpr double kTimedSeconds = 0.010;
constexpr double kFillSeconds = 0.3;
constexpr double kTrialSeconds = 0.9;
constexpr double kClearlyFaster = 1.03;
constexpr std::chrono::milliseconds kTrialDeadline{30'000};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// An engine with the trial's file and memory, given back when it dies.
class TrialEngine {
 public:
  TrialEngine(std::unique_ptr<QueuedEngine> engine, SwapFile& file, std::span<std::byte> memory)
      : engine_(std::move(engine)), memory_(memory) {
    file_ = engine_->register_file(file.fd(), "a trial file in " + file.folder());
    engine_->register_memory(memory);
  }

  /// Bytes per second for the first `bytes` of the file.
  double time(IoRequest::Operation operation, std::uint64_t bytes) {
    const Clock::time_point start = Clock::now();
    for (std::uint64_t offset = 0; offset < bytes; offset += kRequestBytes) {
      submit(operation, offset);
    }
    engine_->drain(kTrialDeadline);
    return static_cast<double>(bytes) / std::max(seconds_since(start), 1e-9);
  }

  /// Writes the file from its start until `seconds` have passed; returns how far it came.
  std::uint64_t fill(std::uint64_t bytes, double seconds) {
    const Clock::time_point start = Clock::now();
    std::uint64_t offset = 0;
    while (offset < bytes && seconds_since(start) < seconds) {
      submit(IoRequest::Operation::kWrite, offset).wait(kTrialDeadline);
      offset += kRequestBytes;
    }
    return offset;
  }

 private:
  // `time` keeps to the size of the memory, so that no two transfers in flight share a piece of it.
  Ticket submit(IoRequest::Operation operation, std::uint64_t offset) {
    return engine_->submit({.operation = operation,
                            .file = file_,
                            .offset = offset,
                            .buffer = memory_.subspan(offset % memory_.size(), kRequestBytes)});
  }

  std::unique_ptr<QueuedEngine> engine_;
  std::span<std::byte> memory_;
  FileId file_;
};

// Contents that no drive makes smaller.
void scramble(std::span<std::byte> memory) {
  std::uint64_t state = 0x9E3779B97F4A7C15;
  for (std::size_t i = 0; i + sizeof state <= memory.size(); i += sizeof state) {
    state ^= state << 13U;
    state ^= state >> 7U;
    state ^= state << 17U;
    std::memcpy(memory.data() + i, &state, sizeof state);
  }
}

std::uint64_t grow_to_trial(SwapFile& file, std::uint64_t most) {
  for (const std::uint64_t bytes : {kFileBytes, kSmallFileBytes}) {
    if (bytes > most) {
      continue;
    }
    try {
      if (file.size_bytes() < bytes) {
        file.grow(bytes - file.size_bytes());
      }
      return bytes;
    } catch (const OutOfSpace&) {
      continue;  // It need not be that much.
    }
  }
  return 0;
}

// As many bytes as take a few milliseconds.
std::uint64_t timed_bytes(double rate, std::uint64_t most) {
  const auto wanted = static_cast<std::uint64_t>(rate * kTimedSeconds) / kRequestBytes * kRequestBytes;
  return std::clamp(wanted, std::min(2 * kRequestBytes, most), most);
}

}  // namespace

std::vector<DiskSetting> disk_candidates(std::uint64_t block_bytes_max) {
  std::vector<DiskSetting> settings{{kMiB, 32, {}},    {kMiB, 16, {}},     {kMiB / 2, 32, {}}, {2 * kMiB, 16, {}},
                                    {kMiB, 8, {}},     {kMiB / 2, 16, {}}, {2 * kMiB, 8, {}},  {4 * kMiB, 8, {}},
                                    {4 * kMiB, 4, {}}, {kMiB / 2, 8, {}},  {2 * kMiB, 4, {}},  {kMiB, 4, {}}};
  std::erase_if(settings, [&](const DiskSetting& setting) { return setting.block_bytes > block_bytes_max; });
  return settings;
}

std::optional<DiskSetting> try_disk(const MakeQueuedEngine& make, SwapFile& file, std::span<const DiskSetting> settings,
                                    const TrialLimits& limits) {
  const Clock::time_point start = Clock::now();
  const std::uint64_t room = grow_to_trial(file, limits.file_bytes);
  if (room == 0 || settings.empty()) {
    return std::nullopt;
  }
  const AlignedBlock memory(std::min(kMemoryBytes, limits.host_bytes / kRequestBytes * kRequestBytes));
  scramble(memory.bytes());
  std::uint64_t written = 0;
  double rate = 0;
  {
    // The first write of a fresh file is slower than all later ones, and of no interest.
    TrialEngine bench(make(settings.front()), file, memory.bytes());
    written = bench.fill(room, kFillSeconds);
    rate = static_cast<double>(written) / seconds_since(start);
  }
  std::vector<DiskSetting> timed(settings.begin(), settings.end());
  for (int round = 0; round < 2; ++round) {
    for (DiskSetting& setting : timed) {
      if (seconds_since(start) > kTrialSeconds) {
        break;
      }
      TrialEngine bench(make(setting), file, memory.bytes());
      const std::uint64_t bytes = timed_bytes(rate, std::min<std::uint64_t>(written, memory.bytes().size()));
      setting.rates.overwrite = std::max(setting.rates.overwrite, bench.time(IoRequest::Operation::kWrite, bytes));
      setting.rates.read = std::max(setting.rates.read, bench.time(IoRequest::Operation::kRead, bytes));
      rate = std::max(rate, std::min(setting.rates.overwrite, setting.rates.read));
    }
  }
  const auto best = std::max_element(timed.begin(), timed.end(), [](const DiskSetting& a, const DiskSetting& b) {
    return a.rates.both() < b.rates.both();
  });
  const DiskSetting& likely = timed.front();
  if (likely.rates.both() <= 0) {
    return std::nullopt;
  }
  return best->rates.both() > kClearlyFaster * likely.rates.both() ? *best : likely;
}

}  // namespace spillway::offload

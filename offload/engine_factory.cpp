#include <spillway/offload/engine_factory.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/disk_trial.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>
#include <spillway/offload/swap_file.hpp>
#include <spillway/offload/thread_engine.hpp>
#include <spillway/offload/tuning_cache.hpp>
#ifdef SPILLWAY_WITH_URING
#include <spillway/offload/uring_engine.hpp>
#endif

namespace spillway::offload {
namespace {

constexpr std::chrono::milliseconds kProbeDeadline{30'000};
constexpr char kInstead[] = "; set aio.engine to auto or threads to do without";

std::unique_ptr<QueuedEngine> make_uring([[maybe_unused]] const EngineOptions& options) {
#ifdef SPILLWAY_WITH_URING
  return make_uring_engine(options);
#else
  throw IoError({.operation = "io_uring_setup",
                 .path = "the storage engine",
                 .offset = 0,
                 .bytes = 0,
                 .error_number = ENOSYS,
                 .advice = "this build has no io_uring (SPILLWAY_URING is off)"});
#endif
}

// Writes, reads back and compares: a ring that can be made may still refuse to work.
void probe(QueuedEngine& engine, SwapFile& file) {
  const AlignedBlock memory(2 * kPageBytes);
  const std::span<std::byte> written = memory.bytes().first(kPageBytes);
  const std::span<std::byte> read = memory.bytes().last(kPageBytes);
  for (std::size_t i = 0; i < written.size(); ++i) {
    written[i] = static_cast<std::byte>(i * 31 + i / 251);
  }
  const std::string label = "a probe file in " + file.folder();
  const FileId id = engine.register_file(file.fd(), label);
  engine.register_memory(memory.bytes());
  const Ticket write =
      engine.submit({.operation = IoRequest::Operation::kWrite, .file = id, .offset = 0, .buffer = written});
  engine.submit({.operation = IoRequest::Operation::kRead, .file = id, .offset = 0, .buffer = read}, {&write, 1})
      .wait(kProbeDeadline);
  engine.unregister_memory(memory.bytes());
  engine.release_file(id);
  if (!std::equal(written.begin(), written.end(), read.begin())) {
    throw IoError({.operation = "read",
                   .path = label,
                   .offset = 0,
                   .bytes = kPageBytes,
                   .error_number = 0,
                   .advice = "what came back is not what was written; the disk or its driver is at fault"});
  }
}

std::unique_ptr<QueuedEngine> make_kind(EngineChoice kind, const EngineOptions& options) {
  return kind == EngineChoice::kIoUring ? make_uring(options) : std::make_unique<ThreadEngine>(options);
}

EngineOptions with(EngineOptions options, EngineChoice kind, const DiskSetting& setting) {
  constexpr unsigned kTunedThreadsMax = 8;
  options.block_bytes = setting.block_bytes;
  options.queue_depth = setting.queue_depth;
  if (kind == EngineChoice::kThreads) {
    options.threads =
        std::min(setting.queue_depth, kTunedThreadsMax);  // A thread is what one transfer in flight takes.
  }
  return options;
}

std::string rate_text(double bytes_per_second) {
  return format_bytes(static_cast<std::uint64_t>(bytes_per_second)) + "/s";
}

// Under which a finding is kept: a path may come to lie on another device.
std::string cache_key(const SwapFile& file, EngineChoice kind, const EngineOptions& options,
                      const TrialOptions& trial) {
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::weakly_canonical(file.folder(), ignored);
  struct stat status {};
  static_cast<void>(::fstat(file.fd(), &status));
  std::string key = "spillway disk trial 1\npath " + (ignored ? file.folder() : folder.string()) + "\ndevice " +
                    std::to_string(status.st_dev) + "\nengine " +
                    (kind == EngineChoice::kIoUring ? "io_uring" : "threads") +
                    (file.direct() ? " direct" : " buffered");
  key += trial.choose ? "\nchunks up to " + std::to_string(trial.block_bytes_max)
                      : "\nchunk " + std::to_string(options.block_bytes) + " depth " +
                            std::to_string(options.queue_depth) + " threads " + std::to_string(options.threads);
  return key;
}

struct Finding {
  DiskSetting setting;
  bool from_cache = false;
};

std::optional<Finding> find_setting(EngineChoice kind, const EngineOptions& options, SwapFile& file,
                                    const TrialOptions& trial) {
  const TuningCache cache(trial.cache_folder);
  const std::string key = cache_key(file, kind, options, trial);
  if (const auto known = cache.find(key)) {
    return Finding{*known, true};
  }
  if (trial.host_bytes < kTrialMemoryBytesMin) {
    return std::nullopt;
  }
  const UniqueFd lock = cache.lock();
  if (const auto known = cache.find(key)) {  // Another rank has just found it.
    return Finding{*known, true};
  }
  EngineOptions untraced = options;
  untraced.trace = nullptr;
  const auto make = [&](const DiskSetting& setting) {
    return make_kind(kind, trial.choose ? with(untraced, kind, setting) : untraced);
  };
  const std::vector<DiskSetting> settings =
      trial.choose ? disk_candidates(trial.block_bytes_max)
                   : std::vector<DiskSetting>{{options.block_bytes, options.queue_depth, {}}};
  const auto found = try_disk(make, file, settings, {.host_bytes = trial.host_bytes, .file_bytes = trial.disk_bytes});
  if (!found) {
    return std::nullopt;
  }
  cache.store(key, *found);
  return Finding{*found, false};
}

// The engine of that kind that is to be used, after the probe and the trial, and what to say of it.
struct Made {
  ChosenEngine chosen;
  std::string says;
};

Made make_tried(EngineChoice kind, EngineOptions options, SwapFile& file, const TrialOptions& trial) {
  Stats* const stats = std::exchange(options.stats, nullptr);  // What is tried here is not counted.
  std::unique_ptr<QueuedEngine> engine = make_kind(kind, options);
  probe(*engine, file);
  Made made{{nullptr, options, {}}, {}};
  if (!trial.choose && !trial.measure_rates) {
    engine->count_in(stats);
    made.chosen.engine = std::move(engine);
    return made;
  }
  engine.reset();  // So that the trial has the disk, and the memory that may be locked, to itself.
  const std::optional<Finding> finding = find_setting(kind, options, file, trial);
  if (finding) {
    made.chosen.rates = finding->setting.rates;
    made.chosen.options = trial.choose ? with(options, kind, finding->setting) : options;
  }
  engine = make_kind(kind, made.chosen.options);
  engine->count_in(stats);
  made.chosen.engine = std::move(engine);
  made.says = "; chunks of " + format_bytes(made.chosen.options.block_bytes) + ", " +
              std::to_string(made.chosen.options.queue_depth) + " in flight";
  made.says += !finding ? " (no trial: there was no room or no time for one)"
                        : std::string(finding->from_cache ? " (found before: " : " (found by a trial: ") +
                              rate_text(finding->setting.rates.read) + " read, " +
                              rate_text(finding->setting.rates.overwrite) + " overwritten)";
  return made;
}

}  // namespace

ChosenEngine choose_engine(EngineChoice choice, const EngineOptions& options, const std::string& folder,
                           const LogSink& log, const TrialOptions& trial) {
  SwapFile file(folder, [](const std::string&) {});  // The swap file proper will say the same about the folder.
  file.grow(kPageBytes);
  const std::string subject = "storage engine for " + folder + ": ";
  if (choice == EngineChoice::kThreads) {
    Made made = make_tried(EngineChoice::kThreads, options, file, trial);
    log(subject + "thread pool, as aio.engine asks for" + made.says);
    return std::move(made.chosen);
  }
  try {
    Made made = make_tried(EngineChoice::kIoUring, options, file, trial);
    log(subject + "io_uring, which passed its trial there" + made.says);
    return std::move(made.chosen);
  } catch (const IoError& error) {
    if (choice == EngineChoice::kIoUring) {
      IoFailure failure = error.failure();
      failure.advice += kInstead;
      throw IoError(std::move(failure));
    }
    Made made = make_tried(EngineChoice::kThreads, options, file, trial);
    log(subject + "thread pool (same results, more processor time)" + made.says +
        ", since io_uring does not work here: " + error.what());
    return std::move(made.chosen);
  }
}

std::unique_ptr<StorageEngine> make_engine(EngineChoice choice, const EngineOptions& options, const std::string& folder,
                                           const LogSink& log) {
  return choose_engine(choice, options, folder, log, {}).engine;
}

}  // namespace spillway::offload

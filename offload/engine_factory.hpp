#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <spillway/offload/log_sink.hpp>
#include <spillway/offload/storage_engine.hpp>

namespace spillway::offload {

enum class EngineChoice : std::uint8_t { kAuto, kIoUring, kThreads };

/// How fast a disk moved large transfers in a short trial; 0: not known.
struct DiskRates {
  double read = 0;  ///< Bytes per second.
  double overwrite = 0;

  /// Of a byte that is read and written back, as state is; 0 where one of the two is not known.
  [[nodiscard]] double both() const noexcept { return read > 0 && overwrite > 0 ? 1 / (1 / read + 1 / overwrite) : 0; }
};

/// A chunk size and depth, and what the disk does with them.
struct DiskSetting {
  std::uint64_t block_bytes = 0;
  unsigned queue_depth = 0;
  DiskRates rates;
};

/// What a short trial of the disk may decide at start-up, see try_disk().
struct TrialOptions {
  bool choose = false;         ///< Chunk size and depth, in the place of those in the options.
  bool measure_rates = false;  ///< Rates are wanted in any case.
  std::uint64_t block_bytes_max = std::uint64_t{4} << 20;  ///< Largest chunk to choose.
  /// Budgets: no trial is made that would exceed one.
  std::uint64_t host_bytes = ~std::uint64_t{0};
  std::uint64_t disk_bytes = ~std::uint64_t{0};
  /// Where findings are kept for the next start, by path, device and engine; empty: nowhere.
  std::string cache_folder{};
};

struct ChosenEngine {
  std::unique_ptr<StorageEngine> engine;
  EngineOptions options;  ///< What the engine was made with.
  DiskRates rates;        ///< Not known where no trial was asked for or could be made.
};

/// As below, and tries the disk where asked to. One line to `log` says what was chosen and why.
[[nodiscard]] ChosenEngine choose_engine(EngineChoice choice, const EngineOptions& options, const std::string& folder,
                                         const LogSink& log, const TrialOptions& trial);

/// Makes the engine for files under `folder`: decided once, with real I/O (write, read back, compare) on a nameless
/// file there. kAuto takes io_uring where that works, else the thread pool, and logs one line with the reason.
/// @throws IoError if an engine is forced and does not work, naming the reason and what to do; results never depend
/// on the choice.
[[nodiscard]] std::unique_ptr<StorageEngine> make_engine(EngineChoice choice, const EngineOptions& options,
                                                         const std::string& folder, const LogSink& log);

}  // namespace spillway::offload

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <spillway/offload/background_sums.hpp>
#include <spillway/offload/budget.hpp>
#include <spillway/offload/engine_factory.hpp>
#include <spillway/offload/extent_map.hpp>
#include <spillway/offload/stats.hpp>
#include <spillway/offload/storage_engine.hpp>
#include <spillway/offload/swap_stripes.hpp>
#include <spillway/offload/trace.hpp>
#include <spillway/offload/tuning_cache.hpp>

namespace spillway::offload {

/// The folders that blocks on disk go to: none, one, or several that are striped over.
class NvmePath {
 public:
  NvmePath() = default;
  NvmePath(std::string folder) : folders_{std::move(folder)} {  // NOLINT(google-explicit-constructor): one is a list.
    if (folders_.front().empty()) {
      folders_.clear();
    }
  }
  NvmePath(const char* folder) : NvmePath(std::string(folder)) {}  // NOLINT(google-explicit-constructor)
  NvmePath(std::vector<std::string> folders)                       // NOLINT(google-explicit-constructor)
      : folders_(std::move(folders)) {}

  [[nodiscard]] bool empty() const noexcept { return folders_.empty(); }
  void clear() noexcept { folders_.clear(); }
  [[nodiscard]] const std::vector<std::string>& folders() const noexcept { return folders_; }

 private:
  std::vector<std::string> folders_;
};

struct TiersOptions {
  std::uint64_t host_bytes = kUnlimitedBytes;  ///< Budget of host memory for all clients together.
  std::uint64_t disk_bytes = kUnlimitedBytes;  ///< Budget of the disk for all clients together.
  NvmePath nvme_path{};                        ///< Folders for swap files; empty: there is no disk tier.
  /// Shares of the folders, one for each; empty: by their measured rates (equal where those can't be had).
  std::vector<unsigned> nvme_weights{};
  EngineChoice engine = EngineChoice::kAuto;
  EngineOptions aio{};
  /// Chunk size and depth are chosen by a short trial of each disk, in the place of aio's. Only speed depends on it.
  bool tune = false;
  /// Where findings of trials are kept from one process to the next; empty: nowhere.
  std::string cache_folder = user_cache_folder();
  bool pin_memory = false;                     ///< Page-lock the buffers where there is a GPU, for its copies.
  std::chrono::milliseconds deadline{60'000};  ///< Longest wait for one transfer.
  LogSink log{};                               ///< Default: one line on stderr.
  std::shared_ptr<Trace> trace{};              ///< Of transfers and stalls; may be null.
};

/// The memory and disk of one rank: budgets, swap space (a file and an engine for each path, seen as one of each), and
/// counters.
/// Shared by the clients (optimizer state, bank), hence held by shared_ptr: users destroy them in any order.
/// Thread-safe where not said otherwise.
class Tiers {
 public:
  /// @throws IoError (missing or unwritable nvme_path, forced engine that does not work); ConfigError (weights that do
  /// not go with the paths).
  explicit Tiers(TiersOptions options);
  /// The same with an engine that the caller made (a test: faulty, or in memory), for one path at most. Without
  /// nvme_path there is no swap file, the space is only kept account of, and the engine is registered a descriptor of
  /// -1.
  Tiers(TiersOptions options, std::unique_ptr<StorageEngine> engine);
  ~Tiers();
  Tiers(const Tiers&) = delete;
  Tiers& operator=(const Tiers&) = delete;

  [[nodiscard]] Budget& host() noexcept { return host_; }
  [[nodiscard]] Budget& disk() noexcept { return disk_; }
  [[nodiscard]] Stats& stats() noexcept { return stats_; }
  [[nodiscard]] bool has_disk() const noexcept { return engine_ != nullptr; }
  /// Precondition: has_disk().
  [[nodiscard]] StorageEngine& engine() noexcept { return *engine_; }
  [[nodiscard]] FileId swap_file_id() const noexcept { return swap_id_; }
  [[nodiscard]] std::chrono::milliseconds deadline() const noexcept { return options_.deadline; }
  [[nodiscard]] const TiersOptions& options() const noexcept { return options_; }
  /// May be null.
  [[nodiscard]] Trace* trace() const noexcept { return options_.trace.get(); }
  /// Where stores have checksums made beside their callers. Begins with the first call, which starts its thread.
  [[nodiscard]] BackgroundSums& sums();
  /// Gives the engine memory to register until unregister_memory. Where it refuses, one line says so and what to do.
  void register_memory(std::span<std::byte> memory);
  void unregister_memory(std::span<std::byte> memory) noexcept { engine_->unregister_memory(memory); }
  /// The folders that hold a range of the swap space, for messages.
  [[nodiscard]] std::string swap_folders(std::uint64_t offset, std::uint64_t bytes) const;
  void log(const std::string& line) const;

  /// Preallocates `bytes` of swap space and reserves them for `owner` until the reservation dies: called once by each
  /// client at its construction. The space goes back to later clients with give_back_swap.
  /// @throws BudgetExceeded, OutOfSpace, or ConfigError where there is no disk tier (names offload.nvme_path).
  struct SwapSpace {
    Reservation reservation;
    std::uint64_t offset = 0;  ///< Start of a contiguous range in the swap space.
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] SwapSpace take_swap(std::uint64_t bytes, const std::string& owner);
  void give_back_swap(SwapSpace space) noexcept;

 private:
  void open_paths();
  void grow_swap(std::uint64_t bytes, const std::string& owner);

  TiersOptions options_;
  Budget host_;
  Budget disk_;
  Stats stats_;
  std::mutex note_mutex_;
  bool noted_ = false;  // What the engine could not have was said.
  std::mutex swap_mutex_;
  std::unique_ptr<SwapStripes> swap_;
  ExtentMap swap_space_;
  FileId swap_id_;
  std::once_flag sums_flag_;
  std::unique_ptr<BackgroundSums> sums_;   // Before the engine: transfers that end there have sums made.
  std::unique_ptr<StorageEngine> engine_;  // Last: drained before the files close.
};

}  // namespace spillway::offload

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <spillway/offload/budget.hpp>
#include <spillway/offload/engine_factory.hpp>
#include <spillway/offload/extent_map.hpp>
#include <spillway/offload/stats.hpp>
#include <spillway/offload/storage_engine.hpp>
#include <spillway/offload/swap_file.hpp>
#include <spillway/offload/trace.hpp>

namespace spillway::offload {

struct TiersOptions {
  std::uint64_t host_bytes = kUnlimitedBytes;  ///< Budget of host memory for all clients together.
  std::uint64_t disk_bytes = kUnlimitedBytes;  ///< Budget of the disk for all clients together.
  std::string nvme_path{};                     ///< Folder for the swap file; empty: there is no disk tier.
  EngineChoice engine = EngineChoice::kAuto;
  EngineOptions aio{};
  std::chrono::milliseconds deadline{60'000};  ///< Longest wait for one transfer.
  LogSink log{};                               ///< Default: one line on stderr.
  std::shared_ptr<Trace> trace{};              ///< Of transfers and stalls; may be null.
};

/// The memory and disk of one rank: budgets, the swap file, the engine that moves bytes between them, and counters.
/// Shared by the clients (optimizer state, bank), hence held by shared_ptr: users destroy them in any order.
/// Thread-safe where not said otherwise.
class Tiers {
 public:
  /// @throws IoError (missing or unwritable nvme_path, forced engine that does not work).
  explicit Tiers(TiersOptions options);
  /// The same with an engine that the caller made (a test: faulty, or in memory). Without nvme_path there is no swap
  /// file, the space is only kept account of, and the engine is registered a descriptor of -1.
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
  void log(const std::string& line) const;

  /// Preallocates `bytes` of swap space and reserves them for `owner` until the reservation dies: called once by each
  /// client at its construction. The space goes back to later clients with give_back_swap.
  /// @throws BudgetExceeded, OutOfSpace, or ConfigError where there is no disk tier (names offload.nvme_path).
  struct SwapSpace {
    Reservation reservation;
    std::uint64_t offset = 0;  ///< Start of a contiguous range in the swap file.
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] SwapSpace take_swap(std::uint64_t bytes, const std::string& owner);
  void give_back_swap(SwapSpace space) noexcept;

 private:
  void grow_swap(std::uint64_t bytes, const std::string& owner);

  TiersOptions options_;
  Budget host_;
  Budget disk_;
  Stats stats_;
  std::mutex swap_mutex_;
  std::unique_ptr<SwapFile> swap_;
  ExtentMap swap_space_;
  FileId swap_id_;
  std::unique_ptr<StorageEngine> engine_;  // Last: drained before the file closes.
};

}  // namespace spillway::offload

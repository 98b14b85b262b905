#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <spillway/offload/request_state.hpp>
#include <spillway/offload/storage_engine.hpp>

#include "support/property.hpp"

namespace spillway::test {

enum class FaultKind {
  kFail,       ///< Moves nothing, ends with `error_number` and poisons the engine, as a real one would be.
  kDelay,      ///< Ends only when the test calls release_delayed().
  kCorrupt,    ///< One bit, chosen by the seed, is not what it was: in memory after a read, on disk after a write.
  kLose,       ///< Reported as done, but nothing moved.
  kTear,       ///< Reported as done, but only the first half of the pages moved.
  kMisdirect,  ///< Goes to the place of the transfer before it.
};

struct Fault {
  FaultKind kind = FaultKind::kFail;
  std::uint64_t nth = 1;  ///< Which transfer, counted from 1 among those that `only` admits.
  bool for_good = false;  ///< That one and every later one; otherwise that one alone.
  std::optional<offload::IoRequest::Operation> only;
  int error_number = 5;  ///< EIO.
};

/// Any engine, with faults that the test asks for. Everything else is passed on as it is. Thread-safe.
class FaultyEngine final : public offload::StorageEngine {
 public:
  explicit FaultyEngine(std::unique_ptr<offload::StorageEngine> inner, std::uint64_t seed = 1);
  /// Releases what is delayed, and drains.
  ~FaultyEngine() override;

  /// Several may be asked for; the first that matches a transfer is met.
  void inject(const Fault& fault);
  /// From now on every transfer meets a fault of this kind with a chance of 1 in `one_in`, drawn from the seed.
  void inject_at_random(FaultKind kind, std::uint64_t one_in);
  /// Lets delayed transfers end, those that have not reached their delay yet too.
  void release_delayed();
  /// One line for each fault that was met: its kind, and the number, operation, offset and bytes of the transfer.
  [[nodiscard]] std::vector<std::string> log() const;
  [[nodiscard]] std::uint64_t submitted() const;

  [[nodiscard]] offload::FileId register_file(int fd, std::string label) override;
  void register_memory(std::span<std::byte> memory) override { inner_->register_memory(memory); }
  void unregister_memory(std::span<std::byte> memory) noexcept override { inner_->unregister_memory(memory); }
  [[nodiscard]] offload::Ticket submit(const offload::IoRequest& request,
                                       std::span<const offload::Ticket> after) override;
  void expedite(const offload::Ticket& ticket) override;
  void drain(std::chrono::milliseconds deadline) override;
  [[nodiscard]] offload::EngineInfo info() const override { return inner_->info(); }

 private:
  using StatePtr = std::shared_ptr<offload::RequestState>;
  struct Rule {
    Fault fault;
    std::uint64_t seen = 0;
  };
  struct Open {
    offload::Ticket inner;
    std::vector<offload::Ticket> after;
  };

  [[nodiscard]] std::optional<Fault> fault_of(const offload::IoRequest& request);
  void forward(const StatePtr& state, const offload::IoRequest& request, std::span<const offload::Ticket> after,
               bool delayed);
  void forward_later(const StatePtr& state, const offload::IoRequest& request, const Fault& fault,
                     std::span<const offload::Ticket> after);
  void meet(const StatePtr& state, offload::IoRequest request, const Fault& fault);
  void flip_a_bit(std::span<std::byte> memory);
  void finish(const StatePtr& state, offload::FailurePtr failure);
  void forget(const StatePtr& state);

  const std::unique_ptr<offload::StorageEngine> inner_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  Random random_;
  std::vector<Rule> rules_;
  std::optional<FaultKind> random_kind_;
  std::uint64_t random_one_in_ = 1;
  std::vector<std::string> log_;
  std::vector<std::string> labels_;
  std::uint64_t submitted_ = 0;
  std::uint64_t previous_offset_ = 0;
  offload::FailurePtr failure_;
  bool releasing_ = false;
  std::vector<std::pair<StatePtr, offload::FailurePtr>> delayed_;
  std::unordered_map<const offload::RequestState*, Open> open_;
};

}  // namespace spillway::test

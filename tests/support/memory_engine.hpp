#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <spillway/offload/request_state.hpp>
#include <spillway/offload/storage_engine.hpp>

#include "support/property.hpp"

namespace spillway::test {

/// An engine whose disk is a vector, and which ends transfers when the test wants it: a store that forgets to wait, or
/// to order one transfer behind another, meets wrong bytes. No thread of its own; data moves when a transfer ends, not
/// when it is submitted. Thread-safe.
class MemoryEngine final : public offload::StorageEngine {
 public:
  enum class Ending {
    kAtOnce,    ///< As soon as what it comes after has ended.
    kOnDemand,  ///< Not before somebody waits for it, with what it comes after: as late as can be.
    kShuffled,  ///< In random order among those that may, a few at each submit and wait.
    kByHand,    ///< Only by end_all(): for deadlines.
  };
  explicit MemoryEngine(Ending ending, std::uint64_t seed = 1) : ending_(ending), random_(seed) {}
  ~MemoryEngine() override { end_all(); }

  /// What happens to a transfer when it ends.
  enum class Fate {
    kDone,
    kFailed,       ///< Ends with EIO; nothing moved.
    kLost,         ///< A write that reports success and changes nothing.
    kMisdirected,  ///< A write that lands a page further on.
  };
  /// Decides by the number of the transfer (1 for the first submitted) and the request. `poison`: a failure fails all
  /// later ones too, as the interface promises; without it the engine mends itself, and only those who ask learn.
  void set_fate(std::function<Fate(std::uint64_t number, const offload::IoRequest&)> fate, bool poison = true);
  void set_ending(Ending ending);

  struct Entry {
    std::uint64_t number = 0;
    offload::IoRequest request;
  };
  /// Submitted and not ended, in the order of submission.
  [[nodiscard]] std::vector<Entry> in_flight() const;
  [[nodiscard]] std::uint64_t submitted() const;
  /// Pairs of transfers that were in flight at once, not ordered by `after`, and touched the same memory (one of them
  /// changing it), or of which an earlier write and a later transfer touched the same place on the disk.
  [[nodiscard]] std::vector<std::string> hazards() const;
  void end_all();
  /// The disk's contents at a place that was written.
  [[nodiscard]] std::span<std::byte> disk(std::uint64_t offset, std::uint64_t bytes);
  [[nodiscard]] std::vector<std::span<std::byte>> registered() const;

  [[nodiscard]] offload::FileId register_file(int fd, std::string label) override;
  void register_memory(std::span<std::byte> memory) override;
  void unregister_memory(std::span<std::byte> memory) noexcept override;
  [[nodiscard]] offload::Ticket submit(const offload::IoRequest& request,
                                       std::span<const offload::Ticket> after) override;
  void expedite(const offload::Ticket& ticket) override;
  void drain(std::chrono::milliseconds deadline) override;
  [[nodiscard]] offload::EngineInfo info() const override;

 private:
  using State = offload::RequestState;
  struct Transfer {
    Entry entry;
    std::shared_ptr<State> state;
    std::vector<const State*> after;      // Those still open.
    std::vector<offload::Ticket> others;  // What it comes after and is no transfer of this engine.
    offload::FailurePtr inherited;        // Why one of them failed.
  };
  struct Ended {
    std::shared_ptr<const State> state;  // Kept: another one must not come to lie where it was.
    offload::FailurePtr failure;
  };

  // Called with the mutex held.
  [[nodiscard]] Transfer* find(const State* state);
  [[nodiscard]] bool comes_after(const Transfer& later, const Transfer& earlier);
  void note_hazards(const Transfer& later);
  void end(std::size_t index);
  void end_with_predecessors(const State* state);
  void end_some(bool all);
  [[nodiscard]] offload::FailurePtr perform(const Transfer& transfer);

  mutable std::mutex mutex_;
  Ending ending_;
  Random random_;
  std::vector<std::byte> disk_;
  std::vector<Transfer> open_;
  std::vector<Ended> failed_;  // Later ones may come after them.
  std::vector<std::string> hazards_;
  std::vector<std::span<std::byte>> registered_;
  std::function<Fate(std::uint64_t, const offload::IoRequest&)> fate_;
  bool poison_ = true;
  offload::FailurePtr failure_;
  std::uint64_t submitted_ = 0;
};

}  // namespace spillway::test

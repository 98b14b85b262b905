#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <spillway/offload/tier.hpp>

namespace spillway::offload {

/// A file known to an engine.
struct FileId {
  std::uint32_t value = 0;
};

/// One transfer between memory and a file. Offset, length and address are multiples of kPageBytes.
struct IoRequest {
  enum class Operation : std::uint8_t { kRead, kWrite };
  Operation operation = Operation::kRead;
  FileId file;
  std::uint64_t offset = 0;
  std::span<std::byte> buffer;  ///< Read into or written from; must stay valid until the ticket is done.
  Lane lane = Lane::kState;
};

class RequestState;
class Trace;

/// A submitted transfer. Copies refer to the same transfer (the engine and several dependents look at it, whichever
/// of them ends first). Thread-safe.
class Ticket {
 public:
  Ticket() noexcept = default;
  explicit Ticket(std::shared_ptr<RequestState> state) noexcept : state_(std::move(state)) {}

  [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }
  /// True once every part of the transfer has ended, well or badly: the buffer is the caller's again.
  [[nodiscard]] bool done() const noexcept;
  /// Blocks until done. @throws IoError if the transfer failed; TimedOut after `deadline`: the transfer is still
  /// running then and the buffer is still the engine's.
  void wait(std::chrono::milliseconds deadline) const;
  /// Blocks until done, however long it takes, and reports no failure: for destructors.
  void settle() const noexcept;
  [[nodiscard]] const std::shared_ptr<RequestState>& state() const noexcept { return state_; }

 private:
  std::shared_ptr<RequestState> state_;
};

struct Stats;

struct EngineOptions {
  std::uint64_t block_bytes = 1U << 20;  ///< Transfers are cut into chunks of this size (multiple of kPageBytes).
  unsigned queue_depth = 32;             ///< Chunks in flight at most.
  unsigned threads = 4;                  ///< Workers of the thread engine.
  Trace* trace = nullptr;                ///< Gets a span for each request; may be null. Outlives the engine.
  unsigned sharers = 1;                  ///< Engines that register the same memory, and count it against one limit.
  Stats* stats = nullptr;                ///< Where its transfers are counted; outlives it. Null: nowhere.
};

struct EngineInfo {
  std::string name;            ///< "io_uring" or "threads".
  bool fixed_buffers = false;  ///< Whether registered memory is really used by the kernel.
  bool fixed_files = false;
  std::string note;  ///< What could not be had and what to do about it; empty where all went well.
};

/// Asynchronous transfers between memory and files. All functions are thread-safe; none throws on a completion
/// thread. After the first failure that retries could not mend the engine is poisoned: transfers in flight end, and
/// every later submit and every wait on an unfinished ticket throws that first error again.
class StorageEngine {
 public:
  StorageEngine() = default;
  StorageEngine(const StorageEngine&) = delete;
  StorageEngine& operator=(const StorageEngine&) = delete;
  /// Drains.
  virtual ~StorageEngine() = default;

  /// Makes an open descriptor known; it must stay open while the engine lives. `label` names it in errors.
  [[nodiscard]] virtual FileId register_file(int fd, std::string label) = 0;
  /// Lets the kernel pin `memory` once instead of at every transfer. A hint: refusal costs speed only. The memory
  /// must outlive the engine or be given back by unregister_memory.
  virtual void register_memory(std::span<std::byte> memory) = 0;
  virtual void unregister_memory(std::span<std::byte> memory) noexcept = 0;

  /// Queues a transfer and returns at once. It starts once every ticket in `after` is done and succeeded; if one of
  /// them fails, it fails with the same error and touches nothing. Within a lane, transfers start in order.
  [[nodiscard]] virtual Ticket submit(const IoRequest& request, std::span<const Ticket> after = {}) = 0;
  /// Somebody waits for this transfer: what is left of it, and of what it comes after, goes to Lane::kWaited.
  virtual void expedite(const Ticket& ticket) = 0;
  /// Blocks until nothing is queued or in flight. @throws the engine's first error.
  virtual void drain(std::chrono::milliseconds deadline) = 0;
  [[nodiscard]] virtual EngineInfo info() const = 0;
};

}  // namespace spillway::offload

#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <spillway/offload/queued_engine.hpp>

namespace spillway::offload {

/// Transfers by pread and pwrite on a few threads: for kernels and containers without io_uring.
class ThreadEngine final : public QueuedEngine {
 public:
  /// Moves what is left of `buffer` at `offset` of `fd` and returns the bytes moved or a negative errno value. Called
  /// by several threads at once.
  using Transfer =
      std::function<std::int64_t(IoRequest::Operation, int fd, std::span<std::byte> buffer, std::uint64_t offset)>;
  /// pread(2) or pwrite(2).
  [[nodiscard]] static std::int64_t system_transfer(IoRequest::Operation operation, int fd, std::span<std::byte> buffer,
                                                    std::uint64_t offset) noexcept;

  /// `transfer` is for tests, which make it fail. @throws ConfigError for options out of range.
  explicit ThreadEngine(const EngineOptions& options, Transfer transfer = system_transfer);
  ~ThreadEngine() override;

  void register_memory(std::span<std::byte> /*memory*/) override {}
  void unregister_memory(std::span<std::byte> /*memory*/) noexcept override {}
  [[nodiscard]] EngineInfo info() const override;

 private:
  void work_available() noexcept override { work_.notify_all(); }
  void work();
  [[nodiscard]] std::int64_t move(Chunk& chunk, TransferStep& step) const;

  const Transfer transfer_;
  std::condition_variable work_;
  bool stopping_ = false;  // Guarded by mutex_.
  std::vector<std::jthread> workers_;
};

}  // namespace spillway::offload

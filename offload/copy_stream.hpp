#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace spillway::offload {

/// A point in a stream. Made by CopyStream::record.
class Event {
 public:
  virtual ~Event() = default;
  /// True once everything that came before it has ended. @throws what a task before it threw.
  [[nodiscard]] virtual bool done() const = 0;
  /// Blocks the calling thread until done. @throws what a task before it threw.
  virtual void synchronize() const = 0;
};

/// An ordered queue of copies beside the caller's thread: a worker thread (HostStream) or a CUDA side stream. Copies
/// of different streams are ordered by events only. Buffers must stay valid until an event recorded after their copy
/// is done. A task that throws stops nothing: what is queued behind it runs, and every event of the same stream that
/// was recorded behind it throws the first such exception. Thread-safe.
class CopyStream {
 public:
  CopyStream() = default;
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;
  /// Waits for what is queued. Events may outlive their stream.
  virtual ~CopyStream() = default;

  /// Queues a copy of `source` to the start of `destination` and returns at once. Either may be host or device memory
  /// where the stream is a CUDA stream. @throws Error if destination is shorter than source.
  virtual void copy(std::span<std::byte> destination, std::span<const std::byte> source) = 0;
  /// Queues a host function. It runs in order with the copies and must not call into a stream.
  virtual void run(std::function<void()> task) = 0;
  [[nodiscard]] virtual std::shared_ptr<Event> record() = 0;
  /// Holds back what is queued later in this stream until `event`, of any stream of the same kind, is done, well or
  /// badly; does not block the caller. @throws Error if the event is of another kind of stream.
  virtual void wait(const std::shared_ptr<Event>& event) = 0;
};

/// A stream on the CPU: one worker thread, first in, first out, truly asynchronous, so that a missing wait fails on
/// machines without a GPU too. `delay_seed` other than 0 makes it pause for a seeded random time before each task
/// (tests).
[[nodiscard]] std::unique_ptr<CopyStream> make_host_stream(unsigned delay_seed = 0);

/// A side stream of the current CUDA device, made through the CUDA runtime (non-blocking, highest priority).
/// @throws Error where there is no CUDA device or the build has no CUDA.
[[nodiscard]] std::unique_ptr<CopyStream> make_cuda_stream();
/// The cudaStream_t behind a stream made by make_cuda_stream, for LibTorch's getStreamFromExternal; null otherwise.
[[nodiscard]] void* native_cuda_stream(const CopyStream& stream) noexcept;
[[nodiscard]] bool cuda_available() noexcept;

}  // namespace spillway::offload

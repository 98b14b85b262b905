#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>

namespace spillway::offload {

/// What happened when: spans of time on the steady clock, kept in memory of a fixed size and written as a document for
/// Perfetto (ui.perfetto.dev) or chrome://tracing. Adding one takes two atomic operations and no lock; where nobody
/// traces there is no Trace and the sites that would add to it look at a null pointer. Once it is full, later spans are
/// counted and dropped. Thread-safe, but for write_json().
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  /// Each is a track of its own, of as many rows as there are spans at a time.
  enum class Track : std::uint8_t { kReads, kWrites, kStalls, kCompute, kChecksums };

  static constexpr std::size_t kSpansMax = std::size_t{1} << 18;  ///< 10 MiB.

  /// Time counts from here on.
  explicit Trace(std::size_t spans_max = kSpansMax);

  /// @param name  A literal: it is not copied. @param bytes  That were moved; 0: none.
  void add(Track track, const char* name, Clock::time_point begin, Clock::time_point end,
           std::uint64_t bytes = 0) noexcept;

  [[nodiscard]] std::size_t spans() const noexcept;
  [[nodiscard]] std::size_t dropped() const noexcept;

  /// The document. Spans that end while it is written may be missing.
  void write_json(std::ostream& out) const;

 private:
  struct Span {
    Track track = Track::kReads;
    std::atomic<bool> complete{false};  // Published by it.
    const char* name = nullptr;
    std::uint64_t bytes = 0;
    Clock::time_point begin;
    Clock::time_point end;
  };

  const Clock::time_point start_;
  const std::size_t spans_max_;
  std::unique_ptr<Span[]> spans_;
  std::atomic<std::size_t> next_{0};
};

/// A span from its construction to its end, on the trace (may be null) and, where Spillway was built with CUDA, as an
/// NVTX range of the calling thread, which costs nothing unless a profiler listens. Ends on the thread it began on.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, Trace::Track track, const char* name) noexcept;
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* trace_;
  Trace::Track track_;
  const char* name_;
  Trace::Clock::time_point begin_;
};

}  // namespace spillway::offload

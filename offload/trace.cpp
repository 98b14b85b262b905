#include <spillway/offload/trace.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <vector>

#ifdef SPILLWAY_WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace spillway::offload {
namespace {

constexpr std::size_t kTracks = 5;
constexpr std::array<const char*, kTracks> kTrackNames{"reads", "writes", "stalls", "compute", "checksums"};
constexpr unsigned kRowsMax = 1000;  // Of a track: thread numbers are made of both.

void begin_range([[maybe_unused]] const char* name) noexcept {
#ifdef SPILLWAY_WITH_NVTX
  ::nvtxRangePushA(name);
#endif
}

void end_range() noexcept {
#ifdef SPILLWAY_WITH_NVTX
  ::nvtxRangePop();
#endif
}

double microseconds(Trace::Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

// Spans of a row must not overlap: each goes to the first row that is free when it begins.
class Rows {
 public:
  unsigned place(Trace::Clock::time_point begin, Trace::Clock::time_point end) {
    auto row = std::find_if(ends_.begin(), ends_.end(), [begin](const auto& last) { return last <= begin; });
    if (row == ends_.end()) {
      row = ends_.size() < kRowsMax ? ends_.insert(ends_.end(), end) : std::prev(ends_.end());
    }
    *row = end;
    return static_cast<unsigned>(row - ends_.begin());
  }
  [[nodiscard]] std::size_t size() const noexcept { return ends_.size(); }

 private:
  std::vector<Trace::Clock::time_point> ends_;
};

std::size_t thread_number(std::size_t track, std::size_t row) { return (track + 1) * kRowsMax + row; }

}  // namespace

Trace::Trace(std::size_t spans_max)
    : start_(Clock::now()), spans_max_(spans_max), spans_(std::make_unique<Span[]>(spans_max)) {}

void Trace::add(Track track, const char* name, Clock::time_point begin, Clock::time_point end,
                std::uint64_t bytes) noexcept {
  const std::size_t index = next_.fetch_add(1, std::memory_order_relaxed);
  if (index >= spans_max_) {
    return;
  }
  Span& span = spans_[index];
  span.track = track;
  span.name = name;
  span.bytes = bytes;
  span.begin = begin;
  span.end = end;
  span.complete.store(true, std::memory_order_release);
}

std::size_t Trace::spans() const noexcept { return std::min(next_.load(std::memory_order_relaxed), spans_max_); }

std::size_t Trace::dropped() const noexcept { return next_.load(std::memory_order_relaxed) - spans(); }

void Trace::write_json(std::ostream& out) const {
  std::vector<const Span*> sorted;
  for (std::size_t i = 0; i < spans(); ++i) {
    if (spans_[i].complete.load(std::memory_order_acquire)) {
      sorted.push_back(&spans_[i]);
    }
  }
  std::sort(sorted.begin(), sorted.end(), [](const Span* a, const Span* b) { return a->begin < b->begin; });
  out << "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"dropped_spans\": " << dropped() << "}, \"traceEvents\": [\n"
      << R"({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "spillway"}})";
  std::array<Rows, kTracks> rows;
  std::array<char, 256> text{};
  for (const Span* span : sorted) {
    const auto track = static_cast<std::size_t>(span->track);
    const std::size_t thread = thread_number(track, rows.at(track).place(span->begin, span->end));
    std::snprintf(text.data(), text.size(),
                  ",\n{\"ph\": \"X\", \"pid\": 1, \"tid\": %zu, \"name\": \"%s\", \"ts\": %.3f, \"dur\": %.3f", thread,
                  span->name, microseconds(span->begin - start_), microseconds(span->end - span->begin));
    out << text.data();
    if (span->bytes > 0) {
      out << ", \"args\": {\"bytes\": " << span->bytes << "}";
    }
    out << "}";
  }
  for (std::size_t track = 0; track < kTracks; ++track) {
    for (std::size_t row = 0; row < rows.at(track).size(); ++row) {
      std::snprintf(text.data(), text.size(),
                    ",\n{\"ph\": \"M\", \"pid\": 1, \"tid\": %zu, \"name\": \"thread_name\", \"args\": {\"name\": "
                    "\"%s\"}}",
                    thread_number(track, row), kTrackNames.at(track));
      out << text.data();
    }
  }
  out << "\n]}\n";
}

TraceSpan::TraceSpan(Trace* trace, Trace::Track track, const char* name) noexcept
    : trace_(trace), track_(track), name_(name) {
  begin_range(name_);
  if (trace_ != nullptr) {
    begin_ = Trace::Clock::now();
  }
}

TraceSpan::~TraceSpan() {
  if (trace_ != nullptr) {
    trace_->add(track_, name_, begin_, Trace::Clock::now());
  }
  end_range();
}

}  // namespace spillway::offload

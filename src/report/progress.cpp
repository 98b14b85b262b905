#include <spillway/app/report/progress.hpp>

#include <algorithm>
#include <array>
#include <cstdio>

#include <sys/ioctl.h>
#include <unistd.h>

#include <spillway/offload/format_bytes.hpp>

namespace spillway::app {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr std::size_t kBarCells = 20;
constexpr unsigned kUsualColumns = 80;
constexpr std::string_view kToLineStart = "\r";
constexpr std::string_view kClearRest = "\x1b[K";

std::string duration(double seconds) {
  const auto whole = static_cast<unsigned long long>(seconds + 0.5);
  std::array<char, 32> text{};
  if (whole >= 3600) {
    std::snprintf(text.data(), text.size(), "%llu:%02llu:%02llu", whole / 3600, whole / 60 % 60, whole % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%llu:%02llu", whole / 60, whole % 60);
  }
  return text.data();
}

std::string occupancy(const char* tier, std::uint64_t used, std::uint64_t budget) {
  if (budget == 0) {
    return "";  // A tier that this run does not have.
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "  %s %.0f %%", tier,
                100.0 * static_cast<double>(used) / static_cast<double>(budget));
  return text.data();
}

}  // namespace

std::optional<unsigned> terminal_columns(int descriptor) noexcept {
  if (isatty(descriptor) == 0) {
    return std::nullopt;
  }
  winsize size{};
  const bool known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualColumns;
}

Progress::Progress(std::ostream& out, const ProgressOptions& options) : out_(out), options_(options) {}

void Progress::step(const StepMetrics& metrics) {
  ++steps_done_;
  steps_skipped_ += metrics.skipped ? 1 : 0;
  run_s_ += metrics.step_s;
  stall_s_ += metrics.stall_s;
  undrawn_s_ += metrics.step_s;
  const bool edge = steps_done_ == 1 || metrics.step == options_.total_steps;
  if (options_.columns) {
    if (edge || undrawn_s_ >= kRedrawSeconds) {
      draw_bar(metrics);
    }
  } else if (edge || metrics.step % options_.steps_per_print == 0) {
    out_ << "step " << metrics.step << "/" << options_.total_steps << status(metrics) << std::endl;
  }
}

void Progress::message(std::string_view line) {
  if (bar_on_line_) {
    out_ << kToLineStart << kClearRest;
    bar_on_line_ = false;
  }
  out_ << line << std::endl;
}

void Progress::finish() {
  if (bar_on_line_) {
    out_ << std::endl;
    bar_on_line_ = false;
  }
}

std::string Progress::status(const StepMetrics& metrics) const {
  const double stalled = run_s_ > 0.0 ? 100.0 * stall_s_ / run_s_ : 0.0;
  std::array<char, 128> numbers{};
  std::snprintf(numbers.data(), numbers.size(), "  loss %.4f  %.0f samples/s  stall %.1f %%", metrics.loss,
                metrics.samples_per_s, stalled);
  const std::uint64_t left = std::max(options_.total_steps, metrics.step) - metrics.step;
  const double left_s = run_s_ / static_cast<double>(steps_done_) * static_cast<double>(left);
  const std::string skipped = steps_skipped_ == 0 ? "" : "  skipped " + std::to_string(steps_skipped_);
  return numbers.data() + skipped + occupancy("device", metrics.device_bytes, options_.device_budget_bytes) +
         occupancy("host", metrics.host_bytes, options_.host_budget_bytes) +
         occupancy("disk", metrics.disk_bytes, options_.disk_budget_bytes) + "  left " + duration(left_s);
}

void Progress::draw_bar(const StepMetrics& metrics) {
  const double share = std::min(
      1.0, static_cast<double>(metrics.step) / static_cast<double>(std::max<std::uint64_t>(1, options_.total_steps)));
  const auto cells = static_cast<std::size_t>(share * static_cast<double>(kBarCells));
  std::string line = "[" + std::string(cells, '#') + std::string(kBarCells - cells, '.') + "] " +
                     std::to_string(metrics.step) + "/" + std::to_string(options_.total_steps) + status(metrics);
  // One column stays free: a full line would scroll.
  line.resize(std::min<std::size_t>(line.size(), std::max(1U, *options_.columns) - 1));
  out_ << kToLineStart << line << kClearRest << std::flush;
  bar_on_line_ = true;
  undrawn_s_ = 0.0;
}

}  // namespace spillway::app

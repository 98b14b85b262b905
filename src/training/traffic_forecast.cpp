#include <spillway/app/training/traffic_forecast.hpp>

#include <numeric>

namespace spillway::app {

TrafficForecast::TrafficForecast(const std::optional<queue::BankOptions>& bank, const optimizer::StepBytes& first,
                                 const optimizer::StepBytes& steady, std::uint64_t gradient_bytes,
                                 const std::optional<queue::LengthSchedule>& length, std::uint64_t read_ahead_bytes)
    : length_(length),
      optimizer_(first),
      steady_(steady),
      read_ahead_bytes_(read_ahead_bytes),
      gradient_bytes_(gradient_bytes) {
  if (bank) bank_.emplace(*bank);
}

optimizer::StepBytes TrafficForecast::next(std::span<const std::int64_t> micro_batch_rows, bool skipped) {
  const std::int64_t all = std::accumulate(micro_batch_rows.begin(), micro_batch_rows.end(), std::int64_t{0});
  return next(WindowRows{micro_batch_rows, all, micro_batch_rows.size()}, skipped);
}

optimizer::StepBytes TrafficForecast::next(const WindowRows& rows, bool skipped) {
  optimizer::StepBytes bytes = optimizer_;
  if (skipped) {
    bytes = {.read = bytes.read == 0 ? 0 : read_ahead_bytes_, .written = 0};  // Nothing is read of what is fresh.
  } else {
    optimizer_ = steady_;
  }
  bytes.read += (rows.rounds + 1) * gradient_bytes_;
  bytes.written += rows.rounds * gradient_bytes_;
  if (bank_) {
    if (length_) bank_->resize(length_->rows_at(step_));
    ++step_;
    bytes.read += rows.own.size() * bank_->scan().read_bytes;
    if (!skipped) bytes.written += bank_->enqueue(rows.all).written_bytes;
  }
  return bytes;
}

}  // namespace spillway::app

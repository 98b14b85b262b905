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
  optimizer::StepBytes bytes = optimizer_;
  if (skipped) {
    bytes = {.read = bytes.read == 0 ? 0 : read_ahead_bytes_, .written = 0};  // Nothing is read of what is fresh.
  } else {
    optimizer_ = steady_;
  }
  bytes.read += (micro_batch_rows.size() + 1) * gradient_bytes_;
  bytes.written += micro_batch_rows.size() * gradient_bytes_;
  if (bank_) {
    if (length_) bank_->resize(length_->rows_at(step_));
    ++step_;
    bytes.read += micro_batch_rows.size() * bank_->scan().read_bytes;
    const auto rows = std::accumulate(micro_batch_rows.begin(), micro_batch_rows.end(), std::int64_t{0});
    if (!skipped) bytes.written += bank_->enqueue(rows).written_bytes;
  }
  return bytes;
}

}  // namespace spillway::app

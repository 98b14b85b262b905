#include <spillway/app/training/traffic_forecast.hpp>

#include <numeric>

namespace spillway::app {

TrafficForecast::TrafficForecast(const queue::BankOptions& bank, const optimizer::StepBytes& first,
                                 const optimizer::StepBytes& steady)
    : bank_(bank), optimizer_(first), steady_(steady) {}

optimizer::StepBytes TrafficForecast::next(std::span<const std::int64_t> micro_batch_rows) {
  optimizer::StepBytes bytes = optimizer_;
  optimizer_ = steady_;
  bytes.read += micro_batch_rows.size() * bank_.scan().read_bytes;
  const auto rows = std::accumulate(micro_batch_rows.begin(), micro_batch_rows.end(), std::int64_t{0});
  bytes.written += bank_.enqueue(rows).written_bytes;
  return bytes;
}

}  // namespace spillway::app

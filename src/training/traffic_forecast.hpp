#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <spillway/app/training/run_plan.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>
#include <spillway/queue/bank_plan.hpp>
#include <spillway/queue/length_schedule.hpp>

namespace spillway::app {

/// Says, before the first step, what every step of a run will read from and write to disk: the optimizer's pass over
/// its state, a scan of the bank for each micro-batch, the enqueue of the window's keys, and sums of gradients: written
/// for each micro-batch, read by every one but the first, for the norm, and by the step. By sizes and rules alone; the
/// run is measured where the transfers are submitted, and compared. A value type.
class TrafficForecast {
 public:
  /// @param bank    None where the method has no bank.
  /// @param length  Of the bank at each step.
  /// @param first   What the optimizer moves in its first step, @param steady in every later one.
  /// @param gradient_bytes  Of the sums of gradients on disk.
  /// @param read_ahead_bytes  What the optimizer reads in vain in a later step that is skipped.
  TrafficForecast(const std::optional<queue::BankOptions>& bank, const optimizer::StepBytes& first,
                  const optimizer::StepBytes& steady, std::uint64_t gradient_bytes = 0,
                  const std::optional<queue::LengthSchedule>& length = {}, std::uint64_t read_ahead_bytes = 0);

  /// The next step, on this rank.
  /// @param skipped  Gradients that are not finite: they are read once more to find out which in place of the update,
  /// and no keys enter the bank.
  optimizer::StepBytes next(const WindowRows& rows, bool skipped = false);
  /// The same on one rank. @param micro_batch_rows  Rows of each micro-batch of its window, in order.
  optimizer::StepBytes next(std::span<const std::int64_t> micro_batch_rows, bool skipped = false);

 private:
  std::optional<queue::BankForecast> bank_;
  std::optional<queue::LengthSchedule> length_;
  std::int64_t step_ = 0;
  optimizer::StepBytes optimizer_;
  optimizer::StepBytes steady_;
  std::uint64_t read_ahead_bytes_;
  std::uint64_t gradient_bytes_;
};

}  // namespace spillway::app

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/epoch_order.hpp>

namespace spillway::app {

/// Which step of which epoch a step of the run is.
struct StepPlace {
  std::uint64_t epoch = 0;
  std::uint64_t window = 0;  ///< In the epoch, as EpochOrder counts.
};

/// How many steps a run has and how large their micro-batches are, known before the first one. Epochs are alike in
/// this. Immutable.
class RunPlan {
 public:
  /// @param samples  Images to train on.
  /// @throws Error where they do not make a single batch.
  RunPlan(const Config& config, std::uint32_t samples);

  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::uint64_t steps_per_epoch() const noexcept { return windows_.size(); }
  /// Where step `step` (from 0) is.
  [[nodiscard]] StepPlace place(std::uint64_t step) const noexcept;
  /// Rows of each micro-batch of step `step`, in order; those of the order's micro-batches that are not empty.
  [[nodiscard]] std::span<const std::int64_t> rows(std::uint64_t step) const noexcept;

  /// The order in which epoch `epoch` visits the samples.
  [[nodiscard]] EpochOrder order(std::uint64_t epoch) const;

 private:
  BatchShape shape_;
  std::uint32_t samples_;
  std::uint64_t seed_;
  std::vector<std::vector<std::int64_t>> windows_;  // Of one epoch.
  std::uint64_t steps_ = 0;
};

}  // namespace spillway::app

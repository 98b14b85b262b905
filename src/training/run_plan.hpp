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

/// Which of the ranks that share the batches.
struct RankPlace {
  std::uint64_t rank = 0;
  std::uint64_t world_size = 1;
};

/// The rows of one step.
struct WindowRows {
  std::span<const std::int64_t> own;  ///< Of each micro-batch of this rank, in order, as far as they have any.
  std::int64_t all = 0;               ///< Of all ranks together.
  std::uint64_t rounds = 0;           ///< Micro-batches that some rank has rows of.
};

/// How many steps a run has and how large their micro-batches are, known before the first one. Epochs are alike in
/// this. Immutable.
class RunPlan {
 public:
  /// @param samples  Images to train on.
  /// @throws Error where they do not make a single batch.
  RunPlan(const Config& config, std::uint32_t samples, const RankPlace& place = {});

  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::uint64_t steps_per_epoch() const noexcept { return windows_.size(); }
  /// Where step `step` (from 0) is.
  [[nodiscard]] StepPlace place(std::uint64_t step) const noexcept;
  /// Rows of each micro-batch of step `step` on this rank, in order; those of the order's micro-batches that are not
  /// empty.
  [[nodiscard]] std::span<const std::int64_t> rows(std::uint64_t step) const noexcept;
  /// The same, with what the other ranks have.
  [[nodiscard]] WindowRows window_rows(std::uint64_t step) const noexcept;

  /// The order in which epoch `epoch` visits the samples.
  [[nodiscard]] EpochOrder order(std::uint64_t epoch) const;

 private:
  BatchShape shape_;
  std::uint32_t samples_;
  std::uint64_t seed_;
  struct Window {
    std::vector<std::int64_t> own;
    std::int64_t all = 0;
    std::uint64_t rounds = 0;
  };
  std::vector<Window> windows_;  // Of one epoch.
  std::uint64_t steps_ = 0;
};

}  // namespace spillway::app

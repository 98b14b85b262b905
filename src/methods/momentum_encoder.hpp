#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/data/counter_rng.hpp>
#include <spillway/app/encoders/encoder.hpp>
#include <spillway/queue/moving_average.hpp>
#include <spillway/queue/rank_shuffle.hpp>

namespace spillway::app {

/// The rows 0 … rows - 1 in random order, as an int64 tensor: a pure function of its arguments.
[[nodiscard]] at::Tensor shuffled_rows(std::int64_t rows, const StreamName& name);

/// The momentum of each step: a constant, or BYOL's way up to 1 at the end of the run.
class ScheduledMomentum {
 public:
  explicit ScheduledMomentum(const ContrastiveConfig& config)
      : base_(config.momentum), rises_(config.momentum_schedule == MomentumSchedule::kCosine) {}
  /// @param step  From 0, of `steps`.
  [[nodiscard]] double at(std::uint64_t step, std::uint64_t steps) const {
    return rises_ ? queue::byol_momentum(base_, step, steps) : base_;
  }

 private:
  double base_;
  bool rises_;
};

/// MoCo's key encoder: starts as a copy of the trained network and follows it slowly, by a moving average of the
/// parameters in float32. Batch-norm statistics are its own. Not thread-safe.
/// Source: He et al. 2020, sec. 3.2.
class MomentumEncoder {
 public:
  /// @param network   Of the same configuration as `followed`; overwritten with its parameters and buffers, and put in
  ///                  training mode. Its parameters need no gradient from here on.
  /// @param followed  The trained network; outlives this.
  /// @param momentum  Share of the former value that stays, 0 to 1.
  MomentumEncoder(ProjectedEncoder network, const ProjectedEncoder& followed, double momentum);

  /// Keys of the images: [N, 1, H, W] to [N, projection_dim], rows of length 1, without a gradient.
  [[nodiscard]] at::Tensor encode(const at::Tensor& images);
  /// The same, in the order of the images too, but the network sees them in the order `shuffle` ([N] int64, a
  /// permutation), so that its batch-norm groups are made of other rows than those of the queries.
  [[nodiscard]] at::Tensor encode(const at::Tensor& images, const at::Tensor& shuffle);
  /// The same over ranks: the networks see rows of one another. All ranks call it; a rank may have no images.
  [[nodiscard]] at::Tensor encode(const at::Tensor& images, const queue::RankShuffle& shuffle);

  /// Of the following steps. @throws ConfigError unless 0 to 1.
  void set_momentum(double momentum) { average_.set_momentum(momentum); }
  /// key = momentum * key + (1 - momentum) * followed, for every parameter. Call it once after each optimizer step.
  void follow() { average_.follow(); }
  /// The same before that for one of the trained network's parameters, whose `master` is its value before rounding;
  /// nothing for a parameter that is not followed. follow() does the others.
  void follow(const at::Tensor& parameter, const at::Tensor& master);

  /// The average before rounding, and running statistics, as TrainingMethod::state() wants them.
  [[nodiscard]] std::vector<NamedTensor> state() const;
  /// After the tensors of state() were written to.
  void state_restored() { average_.publish(); }

  [[nodiscard]] const ProjectedEncoder& network() const noexcept { return network_; }

 private:
  ProjectedEncoder network_;
  queue::MovingAverage average_;                                    // Of the parameters.
  std::unordered_map<const c10::TensorImpl*, std::size_t> places_;  // Of followed parameters, in it.
};

}  // namespace spillway::app

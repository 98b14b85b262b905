#pragma once

#include <optional>
#include <string>

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/image_set.hpp>
#include <spillway/app/encoders/encoder.hpp>
#include <spillway/app/evaluation/evaluate.hpp>
#include <spillway/app/report/metrics.hpp>
#include <spillway/app/training/run_plan.hpp>

namespace spillway::app {

/// Measures the encoder of a run: before the first step, after the epochs that the configuration names, and at the end.
/// One caller at a time.
class RunEvaluation {
 public:
  /// All arguments outlive this.
  RunEvaluation(const Config& config, const SplitImages& images) : config_(config), images_(images) {}

  /// Of the pixels themselves.
  [[nodiscard]] EncoderAccuracy of_pixels() const;
  /// Of the network's features; measured once for the same weights. @see weights_changed().
  EncoderAccuracy of_network(ProjectedEncoder& network);
  /// After each optimizer step.
  void weights_changed() { known_.reset(); }
  /// Whether the step at `place` ends an epoch after which the encoder is measured.
  [[nodiscard]] bool due(const StepPlace& place, const RunPlan& plan) const;

 private:
  [[nodiscard]] EncoderAccuracy measure(const SplitFeatures& features) const;

  const Config& config_;
  const SplitImages& images_;
  std::optional<EncoderAccuracy> known_;  // Of the weights as they are.
};

/// "epoch 3: few-label accuracy 80.1 %, kNN accuracy 82.3 %". @param epoch  From 0.
[[nodiscard]] std::string describe_accuracy(std::uint64_t epoch, const EncoderAccuracy& accuracy);

}  // namespace spillway::app

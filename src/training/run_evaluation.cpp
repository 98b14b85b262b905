#include <spillway/app/training/run_evaluation.hpp>

#include <array>
#include <cstdio>

namespace spillway::app {

EncoderAccuracy RunEvaluation::measure(const SplitFeatures& features) const {
  return {.few_label = evaluate(features, Probe::kFewLabel, config_.evaluation, config_.seed),
          .knn = evaluate(features, Probe::kKnn, config_.evaluation, config_.seed)};
}

EncoderAccuracy RunEvaluation::of_pixels() const { return measure(pixel_features(images_)); }

EncoderAccuracy RunEvaluation::of_network(ProjectedEncoder& network) {
  if (!known_) known_ = measure(encoder_features(images_, network));
  return *known_;
}

bool RunEvaluation::due(const StepPlace& place, const RunPlan& plan) const {
  const std::uint64_t every = config_.evaluation.every;
  return every != 0 && place.window + 1 == plan.steps_per_epoch() && (place.epoch + 1) % every == 0;
}

std::string describe_accuracy(std::uint64_t epoch, const EncoderAccuracy& accuracy) {
  std::array<char, 96> line{};
  std::snprintf(line.data(), line.size(), "epoch %llu: few-label accuracy %.1f %%, kNN accuracy %.1f %%",
                static_cast<unsigned long long>(epoch + 1), accuracy.few_label, accuracy.knn);
  return line.data();
}

}  // namespace spillway::app

#pragma once

#include <cstdint>

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/image_set.hpp>
#include <spillway/app/encoders/encoder.hpp>
#include <spillway/app/evaluation/labelled_features.hpp>

namespace spillway::app {

/// How well features tell classes apart: by a few labels, by their nearest neighbours, or by a linear classifier that
/// sees all labels.
enum class Probe : std::uint8_t { kFewLabel, kKnn, kLinear };

/// What a probe learns from and what it is tested on, float32.
struct SplitFeatures {
  LabelledFeatures train;
  LabelledFeatures test;
};

/// The pixels themselves, [N, H * W].
[[nodiscard]] SplitFeatures pixel_features(const SplitImages& images);

/// The encoder's features, with running batch-norm statistics and without augmentation, in slices of a bounded number
/// of pixels. The network is in training mode before and after.
[[nodiscard]] SplitFeatures encoder_features(const SplitImages& images, ProjectedEncoder& network);

/// Accuracy on the test set in percent. A pure function of its arguments; `seed` chooses the few labels.
/// @throws Error if a set is empty.
[[nodiscard]] double evaluate(const SplitFeatures& features, Probe probe, const EvaluationConfig& config,
                              std::uint64_t seed);

}  // namespace spillway::app

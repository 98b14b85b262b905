#include <spillway/app/evaluation/evaluate.hpp>

#include <algorithm>

#include <spillway/app/data/batches.hpp>
#include <spillway/app/evaluation/few_label.hpp>
#include <spillway/app/evaluation/nearest_neighbours.hpp>
#include <spillway/offload/check.hpp>

namespace spillway::app {
namespace {

// Of a slice: 500 images of 32 x 32, 10 of 224 x 224. Activations of a large network are a few hundred bytes a pixel.
constexpr std::int64_t kPixelsAtOnce = 500 * 32 * 32;
constexpr std::int64_t kImagesAtOnce = 500;

}  // namespace

SplitFeatures pixel_features(const SplitImages& images) {
  const auto pixels = [](const ImageSet& set) {
    return LabelledFeatures{make_images(set).flatten(1), make_labels(set)};
  };
  return {pixels(images.train), pixels(images.test)};
}

SplitFeatures encoder_features(const SplitImages& images, ProjectedEncoder& network) {
  const std::int64_t fitting = kPixelsAtOnce / std::max<std::int64_t>(1, images.train.image_numel());
  const std::int64_t slice = std::clamp<std::int64_t>(fitting, 1, kImagesAtOnce);
  const auto encode = [&](const at::Tensor& batch) { return network.features(batch); };
  const auto encoded = [&](const ImageSet& set) {
    return LabelledFeatures{encode_all(make_images(set), encode, slice), make_labels(set)};
  };
  network.train(false);
  SplitFeatures features{encoded(images.train), encoded(images.test)};
  network.train(true);
  return features;
}

double evaluate(const SplitFeatures& features, Probe probe, const EvaluationConfig& config, std::uint64_t seed) {
  switch (probe) {
    case Probe::kFewLabel:
      return few_label_accuracy(features.train, features.test, config, seed);
    case Probe::kKnn:
      return nearest_neighbour_accuracy(features.train, features.test, config);
    case Probe::kLinear:
      return linear_probe_accuracy(features.train, features.test, config);
  }
  SPILLWAY_CHECK(false, "a probe that there is");
  return 0.0;
}

}  // namespace spillway::app

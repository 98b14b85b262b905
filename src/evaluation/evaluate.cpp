#include <spillway/app/evaluation/evaluate.hpp>

#include <algorithm>
#include <functional>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/cat.h>

#include <spillway/app/data/batches.hpp>
#include <spillway/app/evaluation/few_label.hpp>
#include <spillway/app/evaluation/nearest_neighbours.hpp>
#include <spillway/offload/check.hpp>

namespace spillway::app {
namespace {

// Of a slice: 500 images of 32 x 32, 10 of 224 x 224. Activations of a large network are a few hundred bytes a pixel.
constexpr std::int64_t kPixelsAtOnce = 500 * 32 * 32;
constexpr std::int64_t kImagesAtOnce = 500;
constexpr std::int64_t kPixelSide =
    32;  // What larger images are averaged down to where pixels themselves are features.

std::int64_t slice_of(const ImageSet& set) {
  const std::int64_t fitting = kPixelsAtOnce / std::max<std::int64_t>(1, std::int64_t{set.width} * set.height);
  return std::clamp<std::int64_t>(fitting, 1, kImagesAtOnce);
}

/// Images are made slice by slice: those of files need not fit into memory.
at::Tensor encode_set(const ImageSet& set, const std::function<at::Tensor(const at::Tensor&)>& encode,
                      std::int64_t slice) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (std::uint32_t first = 0; first < set.size(); first += static_cast<std::uint32_t>(slice)) {
    const auto count = std::min<std::uint32_t>(static_cast<std::uint32_t>(slice), set.size() - first);
    parts.push_back(encode(make_images(set, first, count)));
  }
  return at::cat(parts);
}

}  // namespace

SplitFeatures pixel_features(const SplitImages& images) {
  const auto pixels = [](const ImageSet& set) {
    const auto small = [](const at::Tensor& batch) {
      const bool is_small = std::max(batch.size(2), batch.size(3)) <= kPixelSide;
      return (is_small ? batch : at::adaptive_avg_pool2d(batch, {kPixelSide, kPixelSide})).flatten(1);
    };
    return LabelledFeatures{encode_set(set, small, slice_of(set)), make_labels(set)};
  };
  return {pixels(images.train), pixels(images.test)};
}

SplitFeatures encoder_features(const SplitImages& images, ProjectedEncoder& network) {
  const auto encode = [&](const at::Tensor& batch) { return network.features(batch); };
  const auto encoded = [&](const ImageSet& set) {
    return LabelledFeatures{encode_set(set, encode, slice_of(set)), make_labels(set)};
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

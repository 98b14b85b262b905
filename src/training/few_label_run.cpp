#include <spillway/app/training/few_label_run.hpp>

#include <functional>

#include <spillway/app/data/batches.hpp>
#include <spillway/app/evaluation/few_label.hpp>

namespace spillway::app {
namespace {

double accuracy(const SplitImages& images, const Config& config,
                const std::function<at::Tensor(const at::Tensor&)>& encode) {
  const auto labelled = [&](const ImageSet& set) {
    return LabelledFeatures{encode_all(make_images(set), encode), make_labels(set)};
  };
  return few_label_accuracy(labelled(images.train), labelled(images.test), config.evaluation, config.seed);
}

}  // namespace

double raw_accuracy(const SplitImages& images, const Config& config) {
  return accuracy(images, config, [](const at::Tensor& batch) { return batch.flatten(1); });
}

double encoder_accuracy(const SplitImages& images, ProjectedEncoder& network, const Config& config) {
  network.train(false);
  const double percent = accuracy(images, config, [&](const at::Tensor& batch) { return network.features(batch); });
  network.train(true);
  return percent;
}

}  // namespace spillway::app

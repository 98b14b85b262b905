#include <spillway/app/evaluation/evaluate.hpp>

#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>

#include <spillway/app/data/batches.hpp>
#include <spillway/app/data/dataset.hpp>
#include <spillway/app/evaluation/few_label.hpp>
#include <spillway/app/evaluation/nearest_neighbours.hpp>

namespace spillway::app::evaluate_test {
namespace {

SplitImages digits() { return load_dataset({.source = "digits"}, 1).images; }

TEST(Evaluate, GivesEachProbesAccuracyOfTheDigitsPixels) {
  const SplitFeatures features = pixel_features(digits());
  const EvaluationConfig config{.l2 = 100.0};  // A strong penalty, with which the regressions end soon.
  const double few = evaluate(features, Probe::kFewLabel, config, 1);
  const double near = evaluate(features, Probe::kKnn, config, 1);
  const double linear = evaluate(features, Probe::kLinear, config, 1);
  EXPECT_EQ(few, few_label_accuracy(features.train, features.test, config, 1));
  EXPECT_EQ(near, nearest_neighbour_accuracy(features.train, features.test, config));
  EXPECT_GT(near, 80.0);
  EXPECT_GT(linear, few) << "all labels in place of ten a class";
  EXPECT_GT(linear, 85.0);
  EXPECT_LT(linear, 100.0);
}

TEST(Evaluate, TakesTheEncodersFeaturesInEvaluationModeAndLeavesItTraining) {
  at::manual_seed(1);
  const SplitImages images = digits();
  ProjectedEncoder network(EncoderConfig{.channels = {4, 4}}, ContrastiveConfig{},
                           {images.train.width, images.train.height});
  const SplitFeatures features = encoder_features(images, network);
  network.train(false);
  EXPECT_TRUE(at::allclose(features.test.features, network.features(make_images(images.test)), 1e-4, 1e-5));
  EXPECT_TRUE(at::equal(features.test.labels, make_labels(images.test)));
  EXPECT_FALSE(features.train.features.requires_grad());
}

TEST(Evaluate, LeavesTheNetworkAsItWas) {
  at::manual_seed(1);
  const SplitImages images = digits();
  ProjectedEncoder network(EncoderConfig{.channels = {4, 4}}, ContrastiveConfig{},
                           {images.train.width, images.train.height});
  const at::Tensor batch = make_images(images.test).narrow(0, 0, 8);
  const at::Tensor before = network.buffers().front().tensor.clone();
  (void)encoder_features(images, network);
  EXPECT_TRUE(at::equal(network.buffers().front().tensor, before));
  (void)network.features(batch);
  EXPECT_FALSE(at::equal(network.buffers().front().tensor, before)) << "it is training again";
}

}  // namespace
}  // namespace spillway::app::evaluate_test

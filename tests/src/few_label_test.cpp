#include <spillway/app/evaluation/few_label.hpp>

#include <cmath>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <spillway/app/data/batches.hpp>
#include <spillway/app/data/dataset.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app::few_label_test {
namespace {

constexpr std::int64_t kClasses = 3;

/// `count` rows around three centres, each `distance` along an axis of its own.
LabelledFeatures clusters(std::int64_t count, std::int64_t width, double distance, std::uint64_t seed) {
  at::manual_seed(seed);
  const at::Tensor labels = at::arange(count, at::kLong).remainder(kClasses);
  at::Tensor features = at::randn({count, width}, at::kDouble);
  features.narrow(1, 0, kClasses).add_(at::one_hot(labels, kClasses).to(at::kDouble) * distance);
  return {features, labels};
}

/// Gradient of the regression's objective by autograd, as an independent statement of what is minimised.
at::Tensor objective_gradient(const LogisticRegression& model, const LabelledFeatures& data, double l2) {
  const at::Tensor weight = model.weight.detach().clone().requires_grad_();
  const std::int64_t width = data.features.size(1);
  const at::Tensor logits = data.features.mm(weight.narrow(0, 0, width)) + weight[width];
  const at::Tensor loss = at::cross_entropy_loss(logits, data.labels, {}, at::Reduction::Sum) +
                          weight.narrow(0, 0, width).square().sum() * (l2 / 2);
  loss.backward();
  return weight.grad();
}

class RegressionShapes : public ::testing::TestWithParam<std::pair<std::int64_t, std::int64_t>> {};
// More rows than columns, and many more columns than rows, which is solved in the span of the rows.
INSTANTIATE_TEST_SUITE_P(LogisticRegression, RegressionShapes,
                         ::testing::Values(std::pair{60, 4}, std::pair{30, 200}, std::pair{30, 30}));

TEST_P(RegressionShapes, EndsWhereTheGradientOfTheObjectiveIsZero) {
  const auto [count, width] = GetParam();
  for (const double l2 : {0.1, 1.0, 10.0}) {
    const LabelledFeatures data = clusters(count, width, 1.0, 1);
    const auto model = LogisticRegression::fit(data.features, data.labels, kClasses, l2);
    EXPECT_LT(objective_gradient(model, data, l2).norm().item<double>(), 1e-3) << "l2 " << l2;
    EXPECT_LT(model.iterations, 2000);
  }
}

TEST(LogisticRegression, SeparatesWhatCanBeSeparated) {
  const LabelledFeatures data = clusters(300, 5, 20.0, 1);
  const auto model = LogisticRegression::fit(data.features, data.labels, kClasses, 0.01);
  EXPECT_TRUE(at::equal(model.predict(data.features), data.labels));
}

TEST(LogisticRegression, DoesNotShrinkTheBias) {
  // One class much more frequent, features that say nothing: only the bias can learn it, however strong the penalty.
  const at::Tensor features = at::zeros({40, 2}, at::kDouble);
  at::Tensor labels = at::zeros({40}, at::kLong);
  labels[0] = 1;
  const auto model = LogisticRegression::fit(features, labels, 2, 1000.0);
  EXPECT_NEAR((model.weight[2][0] - model.weight[2][1]).item<double>(), std::log(39.0), 1e-3);
}

TEST(FewLabelAccuracy, IsHundredForSeparableAndChanceForUselessFeatures) {
  const EvaluationConfig config;
  EXPECT_EQ(few_label_accuracy(clusters(300, 5, 50.0, 1), clusters(300, 5, 50.0, 2), config, 1), 100.0);
  const double chance = few_label_accuracy(clusters(300, 5, 0.0, 1), clusters(3000, 5, 0.0, 2), config, 1);
  EXPECT_NEAR(chance, 100.0 / kClasses, 5.0);
}

TEST(FewLabelAccuracy, IsAFunctionOfTheSeed) {
  const LabelledFeatures train = clusters(300, 5, 1.0, 1);
  const LabelledFeatures test = clusters(300, 5, 1.0, 2);
  const EvaluationConfig config;
  EXPECT_EQ(few_label_accuracy(train, test, config, 1), few_label_accuracy(train, test, config, 1));
  EXPECT_NE(few_label_accuracy(train, test, config, 1), few_label_accuracy(train, test, config, 2));
}

TEST(FewLabelAccuracy, GrowsWithTheNumberOfLabels) {
  const LabelledFeatures train = clusters(300, 20, 2.5, 1);
  const LabelledFeatures test = clusters(900, 20, 2.5, 2);
  const double one = few_label_accuracy(train, test, {.labels_per_class = 1}, 1);
  EXPECT_GT(few_label_accuracy(train, test, {.labels_per_class = 50}, 1), one + 5.0);
}

TEST(FewLabelAccuracy, TakesAllOfAClassThatHasFewer) {
  const EvaluationConfig config{.labels_per_class = 100, .draws = 2};
  EXPECT_EQ(few_label_accuracy(clusters(12, 5, 50.0, 1), clusters(30, 5, 50.0, 2), config, 1), 100.0);
}

TEST(FewLabelAccuracy, DoesNotDependOnTheScaleOfAColumn) {
  LabelledFeatures train = clusters(300, 5, 2.0, 1);
  LabelledFeatures test = clusters(300, 5, 2.0, 2);
  const double plain = few_label_accuracy(train, test, {}, 1);
  train.features.select(1, 0).mul_(1000.0).add_(7.0);
  test.features.select(1, 0).mul_(1000.0).add_(7.0);
  EXPECT_NEAR(few_label_accuracy(train, test, {}, 1), plain, 0.2);
}

TEST(FewLabelAccuracy, LearnsTheDigitsFromTheirPixels) {
  const Dataset digits = load_dataset({.source = "digits"}, 1);
  const double accuracy =
      few_label_accuracy({make_images(digits.images.train).flatten(1), make_labels(digits.images.train)},
                         {make_images(digits.images.test).flatten(1), make_labels(digits.images.test)}, {}, 1);
  EXPECT_GT(accuracy, 75.0);
  EXPECT_LT(accuracy, 99.0);
}

TEST(FewLabelAccuracy, RefusesSetsThatDoNotFit) {
  EXPECT_THROW((void)few_label_accuracy(clusters(30, 5, 1.0, 1), clusters(30, 6, 1.0, 2), {}, 1), Error);
  EXPECT_THROW((void)few_label_accuracy(clusters(30, 5, 1.0, 1), clusters(0, 5, 1.0, 2), {}, 1), Error);
}

TEST(EncodeAll, IsTheSameInSlicesAndRecordsNoGraph) {
  const at::Tensor images = at::randn({7, 2}).requires_grad_();
  std::vector<std::int64_t> sizes;
  const at::Tensor encoded = encode_all(
      images,
      [&](const at::Tensor& slice) {
        sizes.push_back(slice.size(0));
        return slice * 2;
      },
      3);
  EXPECT_TRUE(at::equal(encoded, images * 2));
  EXPECT_FALSE(encoded.requires_grad());
  EXPECT_THAT(sizes, ::testing::ElementsAre(3, 3, 1));
}

}  // namespace
}  // namespace spillway::app::few_label_test

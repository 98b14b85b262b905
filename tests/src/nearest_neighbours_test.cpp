#include <spillway/app/evaluation/nearest_neighbours.hpp>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <spillway/offload/error.hpp>

namespace spillway::app::nearest_neighbours_test {
namespace {

constexpr std::int64_t kClasses = 3;

LabelledFeatures clusters(std::int64_t count, double distance, std::uint64_t seed) {
  at::manual_seed(seed);
  const at::Tensor labels = at::arange(count, at::kLong).remainder(kClasses);
  return {at::randn({count, 6}) + at::one_hot(labels, 6).to(at::kFloat) * distance, labels};
}

double cosine(const at::Tensor& a, const at::Tensor& b) { return (a.dot(b) / (a.norm() * b.norm())).item<double>(); }

/// The definition, row by row in float64.
double naive_accuracy(const LabelledFeatures& train, const LabelledFeatures& test, const EvaluationConfig& config) {
  int right = 0;
  for (std::int64_t row = 0; row < test.features.size(0); ++row) {
    std::vector<std::pair<double, std::int64_t>> near;
    for (std::int64_t other = 0; other < train.features.size(0); ++other) {
      near.emplace_back(cosine(test.features[row].to(at::kDouble), train.features[other].to(at::kDouble)),
                        train.labels[other].item<std::int64_t>());
    }
    std::sort(near.rbegin(), near.rend());
    near.resize(std::min<std::size_t>(near.size(), config.knn_neighbours));
    std::vector<double> votes(kClasses, 0.0);
    for (const auto& [similarity, label] : near) {
      votes[static_cast<std::size_t>(label)] += std::exp(similarity / config.knn_temperature);
    }
    const auto winner = std::max_element(votes.begin(), votes.end()) - votes.begin();
    right += winner == test.labels[row].item<std::int64_t>() ? 1 : 0;
  }
  return 100.0 * right / static_cast<double>(test.features.size(0));
}

TEST(NearestNeighbours, VoteAsTheDefinitionSays) {
  const LabelledFeatures train = clusters(40, 1.0, 1);
  const LabelledFeatures test = clusters(30, 1.0, 2);
  for (const std::uint64_t neighbours : {1U, 7U, 200U}) {
    for (const double temperature : {0.07, 1.0}) {
      const EvaluationConfig config{.knn_neighbours = neighbours, .knn_temperature = temperature};
      EXPECT_DOUBLE_EQ(nearest_neighbour_accuracy(train, test, config), naive_accuracy(train, test, config))
          << neighbours << " neighbours at " << temperature;
    }
  }
}

TEST(NearestNeighbours, CountForMoreTheNearerTheyAre) {
  // One row of class 0 points the same way, two of class 1 point aside: a plain vote of three would give class 1.
  const LabelledFeatures train{at::tensor({1.0F, 0.0F, 0.6F, 0.8F, 0.6F, -0.8F}).view({3, 2}),
                               at::tensor({0, 1, 1}, at::kLong)};
  const LabelledFeatures test{at::tensor({2.0F, 0.0F}).view({1, 2}), at::tensor({0}, at::kLong)};
  EXPECT_EQ(nearest_neighbour_accuracy(train, test, {.knn_neighbours = 3, .knn_temperature = 0.07}), 100.0);
  EXPECT_EQ(nearest_neighbour_accuracy(train, test, {.knn_neighbours = 3, .knn_temperature = 100.0}), 0.0);
}

TEST(NearestNeighbours, AreHundredForClustersAndChanceForNoise) {
  EXPECT_EQ(nearest_neighbour_accuracy(clusters(300, 50.0, 1), clusters(600, 50.0, 2), {}), 100.0);
  EXPECT_NEAR(nearest_neighbour_accuracy(clusters(300, 0.0, 1), clusters(3000, 0.0, 2), {}), 100.0 / kClasses, 4.0);
}

TEST(NearestNeighbours, DependOnDirectionsAlone) {
  const LabelledFeatures train = clusters(60, 1.0, 1);
  const LabelledFeatures test = clusters(300, 1.0, 2);
  const LabelledFeatures longer{train.features * 1024, train.labels};
  EXPECT_EQ(nearest_neighbour_accuracy(longer, test, {}), nearest_neighbour_accuracy(train, test, {}));
}

TEST(NearestNeighbours, StayFiniteAtALowTemperatureAndForRowsOfZeros) {
  LabelledFeatures train = clusters(60, 50.0, 1);
  train.features[0].zero_();
  EXPECT_EQ(nearest_neighbour_accuracy(train, clusters(60, 50.0, 2), {.knn_temperature = 1e-3}), 100.0);
}

TEST(NearestNeighbours, RefuseSetsThatDoNotFit) {
  const LabelledFeatures train = clusters(30, 1.0, 1);
  EXPECT_THROW((void)nearest_neighbour_accuracy(train, {train.features.narrow(1, 0, 5), train.labels}, {}), Error);
  EXPECT_THROW((void)nearest_neighbour_accuracy(train, clusters(0, 1.0, 1), {}), Error);
}

}  // namespace
}  // namespace spillway::app::nearest_neighbours_test

#include <spillway/app/encoders/encoder.hpp>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

namespace spillway::app::encoder_test {
namespace {

using ::testing::ElementsAre;

constexpr ImageGeometry kDigit{.width = 8, .height = 8};
const EncoderConfig kCnn;
const EncoderConfig kMlp{.kind = EncoderKind::kMlp, .hidden = {24, 12}};

ProjectedEncoder make(const EncoderConfig& config, ImageGeometry geometry = kDigit, std::uint64_t seed = 1) {
  at::manual_seed(seed);
  return {config, ContrastiveConfig{.projection_hidden_dim = 20, .projection_dim = 6, .batch_norm_groups = 2},
          geometry};
}

at::Tensor images(std::int64_t count, ImageGeometry geometry = kDigit) {
  at::manual_seed(7);
  return at::rand({count, 1, geometry.height, geometry.width});
}

std::vector<std::string> names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> list;
  for (const NamedTensor& named : tensors) {
    list.push_back(named.name);
  }
  return list;
}

class EncoderKinds : public ::testing::TestWithParam<EncoderConfig> {};
INSTANTIATE_TEST_SUITE_P(Encoder, EncoderKinds, ::testing::Values(kCnn, kMlp));

TEST_P(EncoderKinds, ProjectsToRowsOfLength1) {
  ProjectedEncoder network = make(GetParam());
  const at::Tensor rows = network.project(images(5));
  EXPECT_EQ(rows.sizes(), (std::vector<std::int64_t>{5, 6}));
  EXPECT_TRUE(at::allclose(rows.norm(2, 1), at::ones(5)));
  EXPECT_EQ(network.features(images(5)).sizes(), (std::vector<std::int64_t>{5, network.feature_dim()}));
}

TEST_P(EncoderKinds, PassesAGradientToEveryParameter) {
  ProjectedEncoder network = make(GetParam());
  (network.project(images(6)) * images(6).flatten(1).narrow(1, 0, 6)).sum().backward();
  for (const NamedTensor& parameter : network.parameters()) {
    ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
    EXPECT_GT(parameter.tensor.grad().abs().sum().item<double>(), 0.0) << parameter.name;
  }
}

TEST_P(EncoderKinds, StartsFromTheSeed) {
  const auto first = make(GetParam(), kDigit, 1).parameters();
  const auto same = make(GetParam(), kDigit, 1).parameters();
  const auto other = make(GetParam(), kDigit, 2).parameters();
  EXPECT_TRUE(at::equal(first.front().tensor, same.front().tensor));
  EXPECT_FALSE(at::equal(first.front().tensor, other.front().tensor));
}

TEST_P(EncoderKinds, DependsOnTheOtherImagesOnlyWhileItTrains) {
  ProjectedEncoder network = make(GetParam());
  const at::Tensor batch = images(8);
  EXPECT_FALSE(at::allclose(network.project(batch).narrow(0, 0, 2), network.project(batch.narrow(0, 0, 2))));
  network.train(false);
  EXPECT_TRUE(at::allclose(network.project(batch).narrow(0, 0, 2), network.project(batch.narrow(0, 0, 2)), 1e-4, 1e-5));
}

TEST(Encoder, NamesItsParametersAndBuffersStably) {
  EXPECT_THAT(names(make(kCnn).parameters()),
              ElementsAre("encoder.conv1.weight", "encoder.bn1.weight", "encoder.bn1.bias", "encoder.conv2.weight",
                          "encoder.bn2.weight", "encoder.bn2.bias", "encoder.conv3.weight", "encoder.bn3.weight",
                          "encoder.bn3.bias", "head.fc1.weight", "head.fc1.bias", "head.fc2.weight", "head.fc2.bias"));
  EXPECT_THAT(names(make(kMlp).parameters()),
              ElementsAre("encoder.fc1.weight", "encoder.bn1.weight", "encoder.bn1.bias", "encoder.fc2.weight",
                          "encoder.bn2.weight", "encoder.bn2.bias", "head.fc1.weight", "head.fc1.bias",
                          "head.fc2.weight", "head.fc2.bias"));
  EXPECT_THAT(names(make(kMlp).buffers()),
              ElementsAre("encoder.bn1.running_mean", "encoder.bn1.running_var", "encoder.bn1.num_batches_tracked",
                          "encoder.bn2.running_mean", "encoder.bn2.running_var", "encoder.bn2.num_batches_tracked"));
}

TEST(Encoder, AveragesOverTwoByTwoRegionsOfTheLastChannels) {
  EXPECT_EQ(make(kCnn).feature_dim(), 4 * 64);
  EXPECT_EQ(make(kMlp).feature_dim(), 12);
}

TEST(Encoder, TakesImagesOfManySizes) {
  for (const ImageGeometry geometry : {ImageGeometry{2, 2}, ImageGeometry{28, 28}, ImageGeometry{5, 9}}) {
    ProjectedEncoder network = make(kCnn, geometry);
    EXPECT_EQ(network.project(images(4, geometry)).sizes(), (std::vector<std::int64_t>{4, 6}));
  }
}

TEST(Encoder, TakesTheCifarStemForSmallImagesUnlessTheConfigurationSaysOtherwise) {
  const auto stem_side = [](EncoderStem stem, ImageGeometry geometry) {
    const EncoderConfig config{.kind = EncoderKind::kResNet18, .stem = stem};
    return make(config, geometry).parameters().front().tensor.size(2);
  };
  EXPECT_EQ(stem_side(EncoderStem::kAuto, {64, 64}), 3);
  EXPECT_EQ(stem_side(EncoderStem::kAuto, {64, 65}), 7);
  EXPECT_EQ(stem_side(EncoderStem::kCifar, {64, 65}), 3);
}

TEST(Encoder, KeepsARowOfZerosFinite) {
  ProjectedEncoder network = make(kCnn);
  for (const NamedTensor& parameter : network.parameters()) {
    parameter.tensor.detach().zero_();
  }
  const at::Tensor rows = network.project(images(4));
  rows.sum().backward();
  EXPECT_TRUE(at::equal(rows, at::zeros({4, 6})));
  EXPECT_TRUE(at::isfinite(network.parameters().front().tensor.grad()).all().item<bool>());
}

}  // namespace
}  // namespace spillway::app::encoder_test

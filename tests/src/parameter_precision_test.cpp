#include <spillway/app/methods/parameter_precision.hpp>

#include <cmath>
#include <string>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

namespace spillway::app::parameter_precision_test {
namespace {

constexpr ImageGeometry kGeometry{12, 12};

Config sixteen_bits(EncoderKind kind, bool half) {
  Config config;
  config.encoder.kind = kind;
  config.encoder.hidden = {16};
  config.encoder.channels = {8, 8};
  config.contrastive.projection_hidden_dim = 16;
  config.contrastive.projection_dim = 8;
  config.contrastive.projection_head = HeadKind::kBatchNorm;
  config.contrastive.batch_norm_groups = 2;
  config.fp16.enabled = half;
  config.bf16.enabled = !half;
  return config;
}

at::Tensor images() { return at::rand({6, 1, kGeometry.height, kGeometry.width}); }

TEST(ParameterPrecision, KeepsBatchNormsInFloat32AndRoundsTheRestInEveryEncoder) {
  for (const EncoderKind kind : {EncoderKind::kMlp, EncoderKind::kSmallCnn, EncoderKind::kResNet18}) {
    for (const bool half : {true, false}) {
      at::manual_seed(1);
      ProjectedEncoder network = make_network(sixteen_bits(kind, half), kGeometry);
      at::manual_seed(1);
      const ProjectedEncoder wide({.kind = kind, .channels = {8, 8}, .hidden = {16}},
                                  sixteen_bits(kind, half).contrastive, kGeometry);
      const at::ScalarType type = half ? at::kHalf : at::kBFloat16;
      const auto plain = wide.parameters();
      const auto parameters = network.parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::string& name = parameters[i].name;
        const bool norm = name.find("bn") != std::string::npos || name.find("downsample.1.") != std::string::npos;
        EXPECT_EQ(parameters[i].tensor.scalar_type(), norm ? at::kFloat : type) << name;
        EXPECT_TRUE(parameters[i].tensor.equal(plain[i].tensor.to(norm ? at::kFloat : type))) << name;
        EXPECT_TRUE(parameters[i].tensor.requires_grad());
      }
      const at::Tensor rows = network.project(images());
      EXPECT_EQ(rows.scalar_type(), at::kFloat);
      EXPECT_EQ(network.features(images()).scalar_type(), at::kFloat);
      rows.select(1, 0).sum().backward();
      for (const NamedTensor& parameter : parameters) {
        ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
        EXPECT_TRUE(std::isfinite(parameter.tensor.grad().to(at::kFloat).sum().item<float>())) << parameter.name;
      }
    }
  }
}

TEST(ParameterPrecision, KeepsWholeLayersByAPartOfOneOfTheirNames) {
  Config config = sixteen_bits(EncoderKind::kMlp, false);
  config.encoder.float32_layers = {"head.fc2.b"};  // Its bias: the weight goes with it.
  ProjectedEncoder network = make_network(config, kGeometry);
  for (const NamedTensor& parameter : network.parameters()) {
    const bool kept = parameter.name.starts_with("head.fc2.");
    EXPECT_EQ(parameter.tensor.scalar_type(), kept ? at::kFloat : at::kBFloat16) << parameter.name;
  }
  EXPECT_TRUE(std::isfinite(network.project(images()).sum().item<float>())) << "batch-norms of 16 bits work too";
}

TEST(ParameterPrecision, LeavesFloat32AsItIs) {
  for (const NamedTensor& parameter : make_network({}, kGeometry).parameters()) {
    EXPECT_EQ(parameter.tensor.scalar_type(), at::kFloat) << parameter.name;
  }
}

}  // namespace
}  // namespace spillway::app::parameter_precision_test

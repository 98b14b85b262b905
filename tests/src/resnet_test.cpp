#include <spillway/app/encoders/resnet.hpp>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/rand.h>

#include <spillway/app/bench/tensor_memory.hpp>

namespace spillway::app::resnet_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAreArray;
using ::testing::Pair;

using Shape = std::vector<std::int64_t>;
using Listed = std::vector<std::pair<std::string, Shape>>;

std::shared_ptr<Backbone> make(ResNetOptions options) {
  at::manual_seed(3);
  return make_resnet(options);
}

at::Tensor images(std::int64_t count, std::int64_t side) {
  at::manual_seed(4);
  return at::rand({count, 1, side, side});
}

template <typename Dict>
Listed listed(const Dict& dict) {
  Listed list;
  for (const auto& item : dict) list.emplace_back(item.key(), item.value().sizes().vec());
  return list;
}

/// The names and shapes that torchvision has without fc, by table 1 of the paper.
struct Expected {
  Listed parameters;
  Listed buffers;

  void convolution(const std::string& name, Shape shape) {
    parameters.emplace_back(name + ".weight", std::move(shape));
  }
  void norm(const std::string& name, std::int64_t width) {
    for (const char* leaf : {".weight", ".bias"}) parameters.emplace_back(name + leaf, Shape{width});
    for (const char* leaf : {".running_mean", ".running_var"}) buffers.emplace_back(name + leaf, Shape{width});
    buffers.emplace_back(name + ".num_batches_tracked", Shape{});
  }
};

Expected expected(std::int64_t depth) {
  const std::vector<int> blocks = depth == 18 ? std::vector<int>{2, 2, 2, 2} : std::vector<int>{3, 4, 6, 3};
  Expected list;
  list.convolution("conv1", {64, 3, 7, 7});
  list.norm("bn1", 64);
  std::int64_t in = 64;
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const std::int64_t width = std::int64_t{64} << stage;
    const std::int64_t out = depth == 50 ? width * 4 : width;
    for (int block = 0; block < blocks[stage]; ++block) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
      list.convolution(name + ".conv1", depth == 50 ? Shape{width, in, 1, 1} : Shape{width, in, 3, 3});
      list.norm(name + ".bn1", width);
      list.convolution(name + ".conv2", {width, width, 3, 3});
      list.norm(name + ".bn2", width);
      if (depth == 50) {
        list.convolution(name + ".conv3", {out, width, 1, 1});
        list.norm(name + ".bn3", out);
      }
      if (block == 0 && in != out) {
        list.convolution(name + ".downsample.0", {out, in, 1, 1});
        list.norm(name + ".downsample.1", out);
      }
      in = out;
    }
  }
  return list;
}

struct Published {
  std::int64_t depth;
  std::int64_t parameters_with_classifier;  ///< Of 1000 classes.
  std::int64_t features;
  std::size_t entries;  ///< Parameters and buffers, without those of the classifier.
};

class ResNetDepths : public ::testing::TestWithParam<Published> {};
INSTANTIATE_TEST_SUITE_P(ResNet, ResNetDepths,
                         ::testing::Values(Published{18, 11'689'512, 512, 120}, Published{34, 21'797'672, 512, 216},
                                           Published{50, 25'557'032, 2048, 318}));

TEST_P(ResNetDepths, HasTorchvisionsNamesShapesAndSize) {
  const auto [depth, with_classifier, features, entries] = GetParam();
  const auto network = make({.depth = depth});
  const Listed parameters = listed(network->named_parameters());
  const Listed buffers = listed(network->named_buffers());
  EXPECT_THAT(parameters, ElementsAreArray(expected(depth).parameters));
  EXPECT_THAT(buffers, ElementsAreArray(expected(depth).buffers));
  EXPECT_EQ(parameters.size() + buffers.size(), entries);
  std::int64_t numel = 1000 * features + 1000;
  for (const at::Tensor& parameter : network->parameters()) numel += parameter.numel();
  EXPECT_EQ(numel, with_classifier);
  EXPECT_EQ(network->feature_dim(), features);
}

TEST(ResNet, IsComparedWithNamesThatWeightsOfTorchvisionHave) {
  const Expected deep = expected(50);
  EXPECT_THAT(deep.parameters, Contains(Pair("layer1.0.downsample.0.weight", Shape{256, 64, 1, 1})));
  EXPECT_THAT(deep.parameters, Contains(Pair("layer3.5.conv2.weight", Shape{256, 256, 3, 3})));
  EXPECT_THAT(deep.parameters, Contains(Pair("layer4.2.bn3.bias", Shape{2048})));
  EXPECT_THAT(expected(18).buffers, Contains(Pair("layer2.0.downsample.1.num_batches_tracked", Shape{})));
}

TEST(ResNet, StartsAsHeEtAlSay) {
  const auto network = make({.depth = 18});
  const auto parameters = network->named_parameters();
  // By fan-out: 512 · 3 · 3 inputs of the gradient; 2.4 million draws.
  const at::Tensor& drawn = parameters["layer4.1.conv2.weight"];
  EXPECT_NEAR(drawn.std().item<double>(), std::sqrt(2.0 / (512 * 9)), 2e-5);
  EXPECT_NEAR(drawn.mean().item<double>(), 0.0, 1e-4);
  const at::Tensor& widening = parameters["layer2.0.downsample.0.weight"];
  EXPECT_NEAR(widening.std().item<double>(), std::sqrt(2.0 / 128), 5e-3);
  EXPECT_TRUE(parameters["layer4.1.bn2.weight"].eq(1).all().item<bool>());
  EXPECT_TRUE(parameters["layer4.1.bn2.bias"].eq(0).all().item<bool>());
}

TEST(ResNet, StartsFromIdentitiesWhereAsked) {
  const auto network = make({.depth = 18, .zero_init_residual = true});
  const auto parameters = network->named_parameters();
  EXPECT_TRUE(parameters["layer2.0.bn2.weight"].eq(0).all().item<bool>());
  EXPECT_TRUE(parameters["layer2.0.bn1.weight"].eq(1).all().item<bool>());
  EXPECT_TRUE(parameters["layer2.0.downsample.1.weight"].eq(1).all().item<bool>());
}

/// The network written out, in evaluation mode, over the tensors that it names.
class WrittenOut {
 public:
  WrittenOut(Backbone& network, const ResNetOptions& options)
      : tensors_(network.named_parameters()), options_(options) {
    for (const auto& buffer : network.named_buffers()) tensors_.insert(buffer.key(), buffer.value());
  }

  at::Tensor forward(const at::Tensor& images) const {
    at::Tensor x = at::cat({images, images, images}, 1);
    x = layer(x, "conv1", "bn1", options_.cifar_stem ? 1 : 2).relu();
    if (!options_.cifar_stem) x = at::max_pool2d(x, 3, 2, 1);
    for (int stage = 1; stage <= 4; ++stage) {
      for (int index = 0;; ++index) {
        const std::string name = "layer" + std::to_string(stage) + "." + std::to_string(index);
        if (!tensors_.contains(name + ".conv1.weight")) break;
        x = block(x, name, stage > 1 && index == 0 ? 2 : 1);
      }
    }
    return x.mean({2, 3});
  }

 private:
  at::Tensor layer(const at::Tensor& x, const std::string& convolution, const std::string& norm,
                   std::int64_t stride) const {
    const at::Tensor& weight = tensors_[convolution + ".weight"];
    return at::batch_norm(at::conv2d(x, weight, {}, stride, weight.size(2) / 2), tensors_[norm + ".weight"],
                          tensors_[norm + ".bias"], tensors_[norm + ".running_mean"], tensors_[norm + ".running_var"],
                          false, 0.1, 1e-5, false);
  }

  at::Tensor block(const at::Tensor& x, const std::string& name, std::int64_t stride) const {
    const bool deep = options_.depth == 50;
    at::Tensor y = layer(x, name + ".conv1", name + ".bn1", deep ? 1 : stride).relu();
    y = layer(y, name + ".conv2", name + ".bn2", deep ? stride : 1);
    if (deep) y = layer(y.relu(), name + ".conv3", name + ".bn3", 1);
    const bool reshaped = tensors_.contains(name + ".downsample.0.weight");
    return (y + (reshaped ? layer(x, name + ".downsample.0", name + ".downsample.1", stride) : x)).relu();
  }

  torch::OrderedDict<std::string, at::Tensor> tensors_;
  ResNetOptions options_;
};

class ResNetForms : public ::testing::TestWithParam<ResNetOptions> {};
INSTANTIATE_TEST_SUITE_P(ResNet, ResNetForms,
                         ::testing::Values(ResNetOptions{.depth = 18, .cifar_stem = true},
                                           ResNetOptions{.depth = 50, .cifar_stem = false}));

TEST_P(ResNetForms, IsTheNetworkOfThePaperOverGreyInThreeChannels) {
  const at::NoGradGuard no_grad;
  const auto network = make(GetParam());
  const at::Tensor batch = images(2, 33);
  (void)network->forward(batch);  // Running statistics that count.
  network->eval();
  const at::Tensor features = network->forward(batch);
  EXPECT_EQ(features.sizes(), (Shape{2, network->feature_dim()}));
  EXPECT_GT(features.std().item<double>(), 0.01);
  EXPECT_TRUE(at::allclose(features, WrittenOut(*network, GetParam()).forward(batch), 1e-3, 1e-4));
}

/// A network after one step's gradients of two calls: BYOL's and SimSiam's way.
std::shared_ptr<Backbone> with_gradients(bool checkpointing) {
  const auto network = make({.depth = 18, .cifar_stem = true, .checkpointing = checkpointing, .groups = 2});
  const at::Tensor batch = images(6, 8);
  const at::Tensor loss = network->forward(batch).square().sum() + network->forward(batch.flip({3})).sum();
  loss.backward();
  return network;
}

TEST(ResNet, HasTheSameGradientsAndStatisticsWithCheckpointing) {
  const auto plain = with_gradients(false);
  const auto again = with_gradients(true);
  const auto others = again->named_parameters();
  for (const auto& parameter : plain->named_parameters()) {
    EXPECT_GT(parameter.value().grad().abs().max().item<double>(), 0.0) << parameter.key();
    EXPECT_TRUE(at::equal(parameter.value().grad(), others[parameter.key()].grad())) << parameter.key();
  }
  const auto buffers = again->named_buffers();
  for (const auto& buffer : plain->named_buffers()) {
    EXPECT_TRUE(at::equal(buffer.value(), buffers[buffer.key()])) << buffer.key();
  }
  EXPECT_EQ(plain->named_buffers()["layer1.0.bn1.num_batches_tracked"].item<std::int64_t>(), 2);
}

TEST(ResNet, HoldsTheInputsOfItsStagesWithCheckpointing) {
  const auto held = [](bool checkpointing) {
    const auto network = make({.depth = 18, .cifar_stem = true, .checkpointing = checkpointing});
    return peak_tensor_bytes([&] { (void)network->forward(images(16, 16)).sum(); });
  };
  EXPECT_LT(held(true), held(false) / 2);
}

}  // namespace
}  // namespace spillway::app::resnet_test

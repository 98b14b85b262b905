#include <spillway/app/encoders/activation_checkpoint.hpp>

#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include <spillway/app/bench/tensor_memory.hpp>
#include <spillway/offload/error.hpp>

#include "support/errors.hpp"

namespace spillway::app::activation_checkpoint_test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kWidth = 16;

/// A linear layer that is used twice, with random zeros between.
struct Layer {
  at::Tensor weight = at::randn({kWidth, kWidth}).requires_grad_();
  int passes = 0;

  Recomputable part() {
    return [this](const at::Tensor& x, Pass) {
      ++passes;
      const at::Tensor once = weight.view_as(weight);
      return at::linear(at::dropout(at::linear(x, once).tanh(), 0.5, true), once).tanh();
    };
  }
};

at::Tensor input() {
  at::manual_seed(2);
  return at::randn({8, kWidth});
}

struct Gradients {
  at::Tensor input;
  at::Tensor weight;
  at::Tensor next_draw;  ///< The generator's next number after backward.
};

/// Two micro-batches, whose gradients add up, through the layer twice each.
Gradients gradients(bool checkpointing) {
  at::manual_seed(1);
  Layer layer;
  const Recomputable part = layer.part();
  const auto run = [&](const at::Tensor& x) {
    return checkpointing ? checkpointed(part, x, {layer.weight}) : part(x, Pass::kFirst);
  };
  const at::Tensor x = input().requires_grad_();
  for (int micro = 0; micro < 2; ++micro) run(run(x) * 2).square().sum().backward();
  return {x.grad(), layer.weight.grad(), at::rand({1})};
}

TEST(ActivationCheckpoint, GivesTheBitsOfAPlainBackward) {
  const Gradients plain = gradients(false);
  const Gradients again = gradients(true);
  EXPECT_GT(plain.weight.abs().max().item<double>(), 0.0);
  EXPECT_TRUE(at::equal(plain.weight, again.weight)) << "the dropout of the second pass is that of the first";
  EXPECT_TRUE(at::equal(plain.input, again.input));
  EXPECT_TRUE(at::equal(plain.next_draw, again.next_draw)) << "backward draws nothing";
}

TEST(ActivationCheckpoint, IsTestedWithRandomNumbersThatMatter) {
  Layer layer;
  const at::Tensor x = input();
  EXPECT_FALSE(at::equal(layer.part()(x, Pass::kFirst), layer.part()(x, Pass::kFirst)));
}

TEST(ActivationCheckpoint, RunsAgainUnderTheAutocastOfTheFirstPass) {
  const auto weight_gradient = [](bool checkpointing) {
    at::manual_seed(1);
    Layer layer;
    const Recomputable part = layer.part();
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const at::Tensor x = input();
    const at::Tensor loss = (checkpointing ? checkpointed(part, x, {layer.weight}) : part(x, Pass::kFirst)).sum();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    loss.backward();
    EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    return layer.weight.grad();
  };
  const at::Tensor plain = weight_gradient(false);
  const at::Tensor again = weight_gradient(true);
  ASSERT_TRUE(again.defined()) << "a cast that a pass without a graph left in the cache has no gradient";
  // Plain adds the two uses of the cached bfloat16 weight up in bfloat16, of 8 bits.
  const double largest = plain.abs().max().item<double>();
  EXPECT_LT((plain - again).abs().max().item<double>(), largest / 64);
}

TEST(ActivationCheckpoint, RunsOnceWhereNothingIsDifferentiated) {
  Layer layer;
  const Recomputable part = layer.part();
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(checkpointed(part, input(), {layer.weight}).requires_grad());
  }
  layer.weight = layer.weight.detach();
  EXPECT_FALSE(checkpointed(part, input(), {layer.weight}).requires_grad());
  EXPECT_EQ(layer.passes, 2);
}

TEST(ActivationCheckpoint, RunsAgainForAGraphThatIsRetained) {
  Layer layer;
  const Recomputable part = layer.part();
  const at::Tensor loss = checkpointed(part, input(), {layer.weight}).sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = layer.weight.grad().clone();
  loss.backward();
  EXPECT_TRUE(at::equal(layer.weight.grad(), once + once));
  EXPECT_EQ(layer.passes, 3);
  EXPECT_ANY_THROW(loss.backward()) << "what it kept is freed";
}

TEST(ActivationCheckpoint, FindsAParameterThatWasChangedBeforeBackward) {
  Layer layer;
  const Recomputable part = layer.part();
  const at::Tensor loss = checkpointed(part, input(), {layer.weight}).sum();
  {
    const at::NoGradGuard no_grad;
    layer.weight.add_(1);
  }
  EXPECT_ANY_THROW(loss.backward());
}

TEST(ActivationCheckpoint, RefusesASecondDerivative) {
  Layer layer;
  const Recomputable part = layer.part();
  const at::Tensor loss = checkpointed(part, input(), {layer.weight}).sum();
  EXPECT_THAT(message_of<Error>([&] {
                (void)torch::autograd::grad({loss}, {layer.weight}, {}, std::nullopt, /*create_graph=*/true);
              }),
              HasSubstr("encoder.checkpointing"));
}

TEST(ActivationCheckpoint, KeepsOnePartInMemoryInPlaceOfAll) {
  constexpr std::int64_t kParts = 8;
  const at::Tensor x = at::rand({1 << 18}).requires_grad_();
  const Recomputable part = [](const at::Tensor& in, Pass) {
    at::Tensor out = in;
    for (int i = 0; i < 8; ++i) out = out.tanh();  // Each keeps its output.
    return out;
  };
  const auto peak = [&](bool checkpointing) {
    return peak_tensor_bytes([&] {
      at::Tensor out = x;
      for (std::int64_t i = 0; i < kParts; ++i) {
        out = checkpointing ? checkpointed(part, out, {}) : part(out, Pass::kFirst);
      }
      out.sum().backward();
      x.mutable_grad().reset();
    });
  };
  // 64 outputs beside a few gradients; then 8 inputs and 8 outputs.
  EXPECT_GT(peak(false), 64 * x.nbytes());
  EXPECT_LT(peak(true), 22 * x.nbytes());
}

}  // namespace
}  // namespace spillway::app::activation_checkpoint_test

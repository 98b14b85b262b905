#include <spillway/optimizer/gradient_hooks.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <spillway/offload/error.hpp>

#include "support/errors.hpp"

namespace spillway::optimizer::gradient_hooks_test {
namespace {

using ::testing::HasSubstr;
using torch::autograd::PostAccumulateGradHook;

struct Taken final : GradientSink {
  void take(std::size_t parameter, at::Tensor gradient) override {
    numbers.push_back(parameter);
    gradients.push_back(gradient);
  }
  void backward_ended() override { ended_after.push_back(numbers.size()); }

  std::vector<std::size_t> numbers;
  std::vector<at::Tensor> gradients;
  std::vector<std::size_t> ended_after;  // How many had been taken, at each end of a backward pass.
};

struct Counting final : PostAccumulateGradHook {
  explicit Counting(int& counted) : calls(counted) {}
  void operator()(const at::Tensor& tensor) override { calls += tensor.grad().defined() ? 1 : 100; }
  int& calls;
};

at::Tensor leaf(at::IntArrayRef sizes) { return at::ones(sizes).requires_grad_(); }

TEST(GradientHooks, TakeEachGradientOnceAndTellTheEnd) {
  const at::Tensor a = leaf({3});
  const at::Tensor b = leaf({2, 2});
  Taken taken;
  GradientHooks hooks(taken);
  hooks.add(a, 7, "a");
  hooks.add(b, 8, "b");
  (a.sum() + (b * b * 3).sum()).backward();
  ASSERT_THAT(taken.numbers, ::testing::UnorderedElementsAre(7, 8));
  EXPECT_FALSE(a.grad().defined());
  EXPECT_FALSE(b.grad().defined());
  EXPECT_THAT(taken.ended_after, ::testing::ElementsAre(2));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_FLOAT_EQ(taken.gradients[i].sum().item<float>(), taken.numbers[i] == 7 ? 3.0F : 24.0F);
    EXPECT_FALSE(taken.gradients[i].requires_grad());
  }
}

TEST(GradientHooks, TakeAgainInASecondBackwardOverTheSameGraph) {
  const at::Tensor a = leaf({3});
  Taken taken;
  GradientHooks hooks(taken);
  hooks.add(a, 0, "a");
  const at::Tensor loss = (a * 2).sum();
  loss.backward({}, /*retain_graph=*/true);
  loss.backward();
  EXPECT_EQ(taken.numbers.size(), 2U);
  EXPECT_THAT(taken.ended_after, ::testing::ElementsAre(1, 2));
}

// Recomputes its input's part of the graph in backward, as a checkpoint does.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight) {
    context->save_for_backward({input, weight});
    return input * weight;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::AutoGradMode enable(true);
    const at::Tensor input = saved[0].detach().requires_grad_();
    (input * saved[1]).backward(gradients[0]);
    return {input.grad(), at::Tensor()};
  }
};

TEST(GradientHooks, FireInANestedBackwardWhoseEndIsNotTheOuterOnes) {
  const at::Tensor weight = leaf({3});
  const at::Tensor first = leaf({3});
  Taken taken;
  GradientHooks hooks(taken);
  hooks.add(weight, 0, "weight");
  hooks.add(first, 1, "first");
  at::Tensor hidden = first * 2;
  hidden = Checkpoint::apply(hidden, weight);
  hidden = Checkpoint::apply(hidden, weight);
  hidden.sum().backward();
  EXPECT_THAT(taken.numbers, ::testing::ElementsAre(0, 0, 1));
  ASSERT_FALSE(taken.ended_after.empty());
  for (const std::size_t count : taken.ended_after) {
    EXPECT_EQ(count, 3U) << "an end was told before the outer pass had ended";
  }
  EXPECT_FALSE(weight.grad().defined());
}

TEST(GradientHooks, RunWhatWasInTheSlotFirstAndPutItBack) {
  const at::Tensor a = leaf({3});
  int calls = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(a, std::make_unique<Counting>(calls));
  Taken taken;
  {
    GradientHooks hooks(taken);
    hooks.add(a, 0, "a");
    a.sum().backward();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(taken.numbers.size(), 1U);
  }
  a.sum().backward();
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(taken.numbers.size(), 1U);
  EXPECT_TRUE(a.grad().defined());
}

// A hook of the user's, set later, that calls the one before.
struct Chained final : PostAccumulateGradHook {
  explicit Chained(std::unique_ptr<PostAccumulateGradHook> before) : inner(std::move(before)) {}
  void operator()(const at::Tensor& tensor) override { (*inner)(tensor); }
  std::unique_ptr<PostAccumulateGradHook> inner;
};

TEST(GradientHooks, LeaveTheirPlaceToOneThatHoldsThemAndDoNothingWhenTheyAreDead) {
  const at::Tensor a = leaf({3});
  Taken taken;
  {
    GradientHooks hooks(taken);
    hooks.add(a, 0, "a");
    auto& slot = torch::autograd::impl::post_acc_grad_hooks(a);
    torch::autograd::impl::set_post_acc_grad_hooks(a, std::make_unique<Chained>(std::move(slot)));
    a.sum().backward();
    EXPECT_EQ(taken.numbers.size(), 1U);
  }
  a.sum().backward();
  EXPECT_EQ(taken.numbers.size(), 1U);
  EXPECT_TRUE(a.grad().defined());
}

TEST(GradientHooks, TakeExpandedAndStridedGradients) {
  const at::Tensor expanded = leaf({4, 5});
  const at::Tensor channels_last = at::ones({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  Taken taken;
  GradientHooks hooks(taken);
  hooks.add(expanded, 0, "expanded");
  hooks.add(channels_last, 1, "channels_last");
  expanded.sum().backward();
  (channels_last * channels_last).sum().backward();
  EXPECT_FLOAT_EQ(taken.gradients[0].sum().item<float>(), 20.0F);
  EXPECT_TRUE(taken.gradients[1].is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(GradientHooks, FollowAParameterThatIsUnfrozenLater) {
  const at::Tensor a = at::ones({3});
  Taken taken;
  GradientHooks hooks(taken);
  hooks.add(a, 0, "a");
  a.requires_grad_();
  a.sum().backward();
  EXPECT_EQ(taken.numbers.size(), 1U);
}

TEST(GradientHooks, RefuseASparseGradientAndLeaveItThere) {
  const at::Tensor a = leaf({3, 2});
  Taken taken;
  GradientHooks hooks(taken);
  hooks.add(a, 0, "parameter 4 of group 1");
  const auto backward = [&] {
    at::embedding(a, at::tensor({0, 2}, at::kLong), -1, false, /*sparse=*/true).sum().backward();
  };
  EXPECT_THAT(message_of<std::exception>(backward), HasSubstr("parameter 4 of group 1 is sparse"));
  EXPECT_TRUE(a.grad().defined());
  EXPECT_TRUE(taken.numbers.empty());
}

TEST(GradientHooks, RefuseAParameterThatOthersTakeUntilThoseAreGone) {
  const at::Tensor a = leaf({3});
  Taken taken;
  auto first = std::make_unique<GradientHooks>(taken);
  first->add(a, 0, "a");
  GradientHooks second(taken);
  EXPECT_THAT(message_of<ConfigError>([&] { second.add(a, 0, "parameter 2 of group 0"); }),
              HasSubstr("parameter 2 of group 0 are taken by another"));
  first.reset();
  second.add(a, 5, "a");
  a.sum().backward();
  EXPECT_THAT(taken.numbers, ::testing::ElementsAre(5));
}

}  // namespace
}  // namespace spillway::optimizer::gradient_hooks_test

#include <spillway/optimizer/sgd_kernel.hpp>

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "kernel_problem.hpp"

namespace spillway::optimizer::sgd_kernel_test {
namespace {

using kernel_test::expect_the_same_bits_however_split;
using kernel_test::expect_within_four_ulp;
using kernel_test::Problem;

struct Case {
  SgdRule rule;
  bool first = false;
  GradientScale scale;
};

std::vector<Case> cases() {
  return {
      {{.lr = 0.1}, false, {}},
      {{.lr = 0.03, .momentum = 0.9, .dampening = 0.3, .weight_decay = 1e-4}, true, {.factor = 1.0 / 3.0}},
      {{.lr = 0.03, .momentum = 0.9, .dampening = 0.3, .weight_decay = 1e-4}, false, {.factor = 1.0 / 65536}},
      {{.lr = 0.05, .momentum = 0.99, .nesterov = true}, false, {.factor = 0.7, .limit = 0.25}},
  };
}

// LibTorch's formula in float64. @returns the weight; `buffer` is updated.
double update(const Case& c, double w, double g, double& buffer) {
  g = kernel_test::scaled(static_cast<float>(g), c.scale);
  g += c.rule.weight_decay * w;
  if (c.rule.momentum != 0.0) {
    buffer = c.first ? g : c.rule.momentum * buffer + (1.0 - c.rule.dampening) * g;
    g = c.rule.nesterov ? g + c.rule.momentum * buffer : buffer;
  }
  return w - c.rule.lr * g;
}

void run(Problem& problem, const Case& c, std::size_t split, unsigned threads = 1) {
  const SgdStep step = sgd_step(c.rule);
  SgdTensor tensors[] = {problem.sgd(step, c.rule.momentum != 0.0, 0, split),
                         problem.sgd(step, c.rule.momentum != 0.0, split, problem.numel)};
  tensors[0].first = tensors[1].first = c.first;
  sgd_update(tensors, problem.types, c.scale, offload::Parallel({.threads = threads}));
}

TEST(SgdKernel, AWeightIsWithinFourUlpOfTheExactStepForEveryTypeAndInstructionSet) {
  expect_within_four_ulp(cases(), run, [](const Case& c, const Problem& before, std::size_t i) {
    double buffer = before.state_at(0, i);
    return update(c, before.weight_at(i), before.gradient_at(i), buffer);
  });
}

TEST(SgdKernel, NeitherSplitNorThreadsNorInstructionSetChangeABit) { expect_the_same_bits_however_split(cases(), run); }

TEST(SgdKernel, TheFirstStepDoesNotReadTheBuffer) {
  const Case c = cases()[1];
  Problem clean({}, 37, 3);
  Problem garbage = clean;
  std::fill(garbage.state[0].begin(), garbage.state[0].end(), std::byte{0xFF});  // NaN.
  run(clean, c, 37);
  run(garbage, c, 37);
  EXPECT_EQ(garbage.weight, clean.weight);
  EXPECT_EQ(garbage.state[0], clean.state[0]);
}

}  // namespace
}  // namespace spillway::optimizer::sgd_kernel_test

#include <spillway/optimizer/adagrad_kernel.hpp>

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "kernel_problem.hpp"

namespace spillway::optimizer::adagrad_kernel_test {
namespace {

using kernel_test::expect_the_same_bits_however_split;
using kernel_test::expect_within_four_ulp;
using kernel_test::Problem;

struct Case {
  AdagradRule rule;
  std::uint64_t step = 1;
  GradientScale scale;
};

std::vector<Case> cases() {
  return {{{}, 1, {}}, {{.lr = 0.1, .lr_decay = 1e-2, .weight_decay = 1e-3, .eps = 1e-6}, 50, {.factor = 0.3}}};
}

// LibTorch's formula in float64.
double update(const Case& c, double w, double g, double sum) {
  g = kernel_test::scaled(static_cast<float>(g), c.scale) + c.rule.weight_decay * w;
  sum += g * g;
  return w - c.rule.lr / (1.0 + static_cast<double>(c.step - 1) * c.rule.lr_decay) * g / (std::sqrt(sum) + c.rule.eps);
}

void run(Problem& problem, const Case& c, std::size_t split, unsigned threads = 1) {
  const AdagradStep step = adagrad_step(c.rule, c.step);
  const AdagradTensor tensors[] = {problem.adagrad(step, 0, split), problem.adagrad(step, split, problem.numel)};
  adagrad_update(tensors, problem.types, c.scale, offload::Parallel({.threads = threads}));
}

TEST(AdagradKernel, AWeightIsWithinFourUlpOfTheExactStepForEveryTypeAndInstructionSet) {
  expect_within_four_ulp(cases(), run, [](const Case& c, const Problem& before, std::size_t i) {
    return update(c, before.weight_at(i), before.gradient_at(i), before.state_at(1, i));
  });
}

TEST(AdagradKernel, NeitherSplitNorThreadsNorInstructionSetChangeABit) {
  expect_the_same_bits_however_split(cases(), run);
}

}  // namespace
}  // namespace spillway::optimizer::adagrad_kernel_test

#include <spillway/optimizer/adagrad_kernel.hpp>

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "kernel_problem.hpp"

namespace spillway::optimizer::adagrad_kernel_test {
namespace {

using kernel_test::all_types;
using kernel_test::InstructionSet;
using kernel_test::name_of;
using kernel_test::Problem;
using kernel_test::rounding_of;
using kernel_test::ulps;

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
  g = g * c.scale.factor + c.rule.weight_decay * w;
  sum += g * g;
  return w - c.rule.lr / (1.0 + static_cast<double>(c.step - 1) * c.rule.lr_decay) * g / (std::sqrt(sum) + c.rule.eps);
}

void run(Problem& problem, const Case& c, std::size_t split, unsigned threads = 1) {
  const AdagradStep step = adagrad_step(c.rule, c.step);
  const AdagradTensor tensors[] = {problem.adagrad(step, 0, split), problem.adagrad(step, split, problem.numel)};
  adagrad_update(tensors, problem.types, c.scale, offload::Parallel({.threads = threads}));
}

TEST(AdagradKernel, AWeightIsWithinFourUlpOfTheExactStepForEveryTypeAndInstructionSet) {
  double worst = 0.0;
  for (const std::string& set : kernel_instruction_sets()) {
    const InstructionSet use(set);
    for (const KernelTypes& types : all_types()) {
      for (const Case& c : cases()) {
        const Problem before(types, 3001, 17);
        Problem after = before;
        run(after, c, 3001);
        for (std::size_t i = 0; i < before.numel; ++i) {
          const double old = before.weight_at(i);
          const double exact = update(c, old, before.gradient_at(i), before.state_at(1, i));
          const double rounding = rounding_of(types.weight, after.weight_at(i));
          const double error = std::max(0.0, std::abs(after.weight_at(i) - exact) - rounding);
          const double in_ulps = ulps(error, 0.0, std::max(std::abs(old), std::abs(exact - old)));
          ASSERT_LE(in_ulps, 4.0) << set << ", " << name_of(types) << ", element " << i;
          worst = std::max(worst, in_ulps);
        }
      }
    }
  }
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(AdagradKernel, NeitherSplitNorThreadsNorInstructionSetChangeABit) {
  for (const KernelTypes& types : all_types()) {
    for (const Case& c : cases()) {
      Problem expected(types, 131, 23);
      run(expected, c, 131);
      for (const std::string& set : kernel_instruction_sets()) {
        const InstructionSet use(set);
        for (const std::size_t split : {0U, 1U, 7U, 8U, 64U, 100U}) {
          Problem problem(types, 131, 23);
          run(problem, c, split, 3);
          ASSERT_TRUE(problem.same_bits(expected)) << set << ", " << name_of(types) << ", split at " << split;
        }
      }
    }
  }
}

}  // namespace
}  // namespace spillway::optimizer::adagrad_kernel_test

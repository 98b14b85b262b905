#include <spillway/optimizer/adam_kernel.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include <gtest/gtest.h>

#include "kernel_problem.hpp"

namespace spillway::optimizer::adam_kernel_test {
namespace {

using kernel_test::all_types;
using kernel_test::InstructionSet;
using kernel_test::name_of;
using kernel_test::Problem;
using kernel_test::rounding_of;
using kernel_test::ulps;

struct Case {
  AdamRule rule;
  bool amsgrad = false;
  std::uint64_t step = 1;
  GradientScale scale;
};

std::vector<Case> cases() {
  return {
      {{}, false, 1, {}},
      {{.lr = 3e-4, .beta2 = 0.95, .weight_decay = 0.1, .decoupled = true}, false, 7, {}},
      {{.lr = 1e-2, .weight_decay = 1e-2}, true, 1000, {.factor = 1.0 / 1000, .clip_factor = 1.0 / 10.000001}},
      {{.lr = 1e-3, .eps = 1e-6, .weight_decay = 1e-2, .decoupled = true},
       true,
       3,
       {.divisor = 3, .factor = 0.3, .limit = 0.5}},
  };
}

// One element as LibTorch's formula has it, in float64, or with every operation rounded as a plain float32 loop would.
template <typename Real>
struct Element {
  Real w, g, m, v, largest;
};

template <typename Real>
Element<Real> update(const Case& c, Element<Real> e) {
  const auto real = [](double value) { return static_cast<Real>(value); };
  const auto count = static_cast<double>(c.step);
  e.g = real(kernel_test::scaled(static_cast<float>(e.g), c.scale));
  if (c.rule.weight_decay != 0.0) {
    if (c.rule.decoupled) {
      e.w *= real(1.0 - c.rule.lr * c.rule.weight_decay);
    } else {
      e.g += real(c.rule.weight_decay) * e.w;
    }
  }
  e.m = real(c.rule.beta1) * e.m + real(1.0 - c.rule.beta1) * e.g;
  e.v = real(c.rule.beta2) * e.v + real(1.0 - c.rule.beta2) * e.g * e.g;
  Real used = e.v;
  if (c.amsgrad) {
    used = e.largest = std::max(e.largest, e.v);
  }
  const Real denominator = std::sqrt(used) / real(std::sqrt(1.0 - std::pow(c.rule.beta2, count))) + real(c.rule.eps);
  e.w -= real(c.rule.lr / (1.0 - std::pow(c.rule.beta1, count))) * e.m / denominator;
  return e;
}

template <typename Real>
Element<Real> element_of(const Problem& problem, std::size_t i) {
  const auto real = [](double value) { return static_cast<Real>(value); };
  return {real(problem.weight_at(i)), real(problem.gradient_at(i)), real(problem.state_at(0, i)),
          real(problem.state_at(1, i)), real(problem.state_at(2, i))};
}

void run(Problem& problem, const Case& c, unsigned threads = 1) {
  const AdamStep step = adam_step(c.rule, c.step);
  const AdamTensor tensor = problem.adam(step, c.amsgrad, 0, problem.numel);
  adam_update({&tensor, 1}, problem.types, c.scale, offload::Parallel({.threads = threads}));
}

// Where the parts of the first moment cancel to less than a millionth of what a float holds of them, so that nothing is
// left of the weight's step, the constants' 48 bits show, and so does the rounding of the reference.
double cancelled(const Case& c, const Element<double>& old) {
  Element<double> parts = old;
  parts.m = std::abs(old.m) + std::abs(kernel_test::scaled(static_cast<float>(old.g), c.scale));
  parts.g = 0.0;
  parts.w = 0.0;
  parts.v = update(c, old).v;
  return 0x1p-46 * std::abs(update(c, parts).w);
}

// The largest error of a weight, in units of the last place of max(|w|, |Δw|), beyond its form's own rounding.
double worst_weight(const Problem& before, const Problem& after, const Case& c) {
  double worst = 0.0;
  for (std::size_t i = 0; i < before.numel; ++i) {
    const auto old = element_of<double>(before, i);
    const double exact = update(c, old).w;
    const double scale = std::max(std::abs(old.w), std::abs(exact - old.w));
    const double rounding = rounding_of(before.types.weight, after.weight_at(i));
    const double error = std::max(0.0, std::abs(after.weight_at(i) - exact) - rounding - cancelled(c, old));
    worst = std::max(worst, ulps(error, 0.0, scale));
  }
  return worst;
}

TEST(AdamKernel, AWeightIsWithinFourUlpOfTheExactStepForEveryTypeAndInstructionSet) {
  double worst = 0.0;
  for (const std::string& set : kernel_instruction_sets()) {
    const InstructionSet use(set);
    for (const KernelTypes& types : all_types()) {
      for (const Case& c : cases()) {
        const Problem before(types, 3001, 17);
        Problem after = before;
        run(after, c);
        const double error = worst_weight(before, after, c);
        EXPECT_LE(error, 4.0) << set << ", " << name_of(types) << ", step " << c.step;
        worst = std::max(worst, error);
      }
    }
  }
  RecordProperty("worst_ulp", std::to_string(worst));
}

// What the extra bits in the kernel are for: the usual float32 loop is outside of the bound on the same inputs.
TEST(AdamKernel, APlainFloat32LoopIsNotWithinFourUlp) {
  const Problem problem({}, 30'001, 17);
  double worst = 0.0;
  for (const Case& c : cases()) {
    for (std::size_t i = 0; i < problem.numel; ++i) {
      const auto old = element_of<double>(problem, i);
      const double exact = update(c, old).w;
      const double got = update(c, element_of<float>(problem, i)).w;
      worst = std::max(worst, ulps(got, exact, std::max(std::abs(old.w), std::abs(exact - old.w))));
    }
  }
  EXPECT_GT(worst, 4.0);
}

TEST(AdamKernel, MomentsAreWithinTwoUlp) {
  for (const Case& c : cases()) {
    const Problem before({}, 30'001, 5);
    Problem after = before;
    run(after, c);
    for (std::size_t i = 0; i < before.numel; ++i) {
      const auto exact = update(c, element_of<double>(before, i));
      ASSERT_LE(ulps(after.state_at(0, i), exact.m, exact.m), 1.01) << i;
      ASSERT_LE(ulps(after.state_at(1, i), exact.v, exact.v), 2.0) << i;
      if (c.amsgrad) {
        ASSERT_LE(ulps(after.state_at(2, i), exact.largest, exact.largest), 2.0) << i;
      } else {
        ASSERT_EQ(after.state_at(2, i), before.state_at(2, i));
      }
    }
  }
}

TEST(AdamKernel, EveryInstructionSetGivesTheSameBits) {
  for (const KernelTypes& types : all_types()) {
    for (const Case& c : cases()) {
      Problem expected(types, 1003, 23);
      run(expected, c);
      for (const std::string& set : kernel_instruction_sets()) {
        const InstructionSet use(set);
        Problem problem(types, 1003, 23);
        run(problem, c);
        EXPECT_TRUE(problem.same_bits(expected)) << set << ", " << name_of(types) << ", step " << c.step;
      }
    }
  }
}

TEST(AdamKernel, ASplitAnywhereChangesNoBit) {
  const Case c = cases()[3];
  const AdamStep step = adam_step(c.rule, c.step);
  for (const std::string& set : kernel_instruction_sets()) {
    const InstructionSet use(set);
    for (const KernelTypes& types : all_types()) {
      Problem whole(types, 131, 29);
      run(whole, c);
      for (std::size_t at = 0; at <= 131; ++at) {
        Problem parts(types, 131, 29);
        const AdamTensor tensors[] = {parts.adam(step, c.amsgrad, 0, at), parts.adam(step, c.amsgrad, at, 131)};
        adam_update(tensors, types, c.scale, offload::Parallel({.threads = 1}));
        ASSERT_TRUE(parts.same_bits(whole)) << set << ", " << name_of(types) << ", split at " << at;
      }
    }
  }
}

TEST(AdamKernel, ThreadsChangeNoBit) {
  for (const KernelTypes& types : {KernelTypes{}, all_types().back()}) {
    Problem expected(types, 400'003, 31);
    run(expected, cases()[2]);
    for (const unsigned threads : {2U, 3U, 7U}) {
      Problem problem(types, 400'003, 31);
      run(problem, cases()[2], threads);
      EXPECT_TRUE(problem.same_bits(expected)) << threads;
    }
  }
}

TEST(AdamKernel, ManySmallTensorsAreUpdatedAsOneByOne) {
  constexpr std::size_t kTensors = 2000;
  std::vector<Problem> together, alone;
  const Case c = cases()[1];
  const AdamStep step = adam_step(c.rule, c.step);
  std::vector<AdamTensor> tensors;
  for (std::size_t t = 0; t < kTensors; ++t) {
    together.emplace_back(KernelTypes{}, t % 67, t);  // Empty ones among them.
  }
  alone = together;
  for (std::size_t t = 0; t < kTensors; ++t) {
    tensors.push_back(together[t].numel == 0 ? AdamTensor{.step = &step}
                                             : together[t].adam(step, false, 0, together[t].numel));
    if (alone[t].numel != 0) {
      run(alone[t], c);
    }
  }
  adam_update(tensors, {}, c.scale, offload::Parallel({.threads = 3}));
  for (std::size_t t = 0; t < kTensors; ++t) {
    ASSERT_TRUE(together[t].same_bits(alone[t])) << t;
  }
}

TEST(AdamKernel, ALearningRateOfZeroMovesNoWeightButTheMoments) {
  const Problem before({}, 99, 37);
  Problem after = before;
  run(after, {{.lr = 0.0}, false, 1, {}});
  for (std::size_t i = 0; i < before.numel; ++i) {
    EXPECT_EQ(after.weight_at(i), before.weight_at(i));
  }
  EXPECT_NE(after.state[0], before.state[0]);
}

constexpr std::array kFormsWithMaster{WeightForm::kMasterToBFloat16, WeightForm::kMasterToFloat16,
                                      WeightForm::kBFloat16AndRemainder};

TEST(AdamKernel, FreshMastersStartFromThePublishedWeight) {
  for (const std::string& set : kernel_instruction_sets()) {
    const InstructionSet use(set);
    for (const WeightForm form : kFormsWithMaster) {
      Problem fresh({ElementType::kBFloat16, form, ElementType::kFloat32}, 131, 47);
      std::fill(fresh.master.begin(), fresh.master.end(), std::byte{0});
      // What a float32 weight of the published value becomes.
      Problem wide({ElementType::kBFloat16, WeightForm::kFloat32, ElementType::kFloat32}, 131, 47);
      for (std::size_t i = 0; i < wide.numel; ++i) {
        const auto value = static_cast<float>(fresh.published_at(i));
        std::memcpy(wide.weight.data() + i * sizeof(value), &value, sizeof(value));
      }
      run(fresh, cases()[1]);
      run(wide, cases()[1]);
      for (std::size_t i = 0; i < wide.numel; ++i) {
        ASSERT_EQ(fresh.weight_at(i), wide.weight_at(i)) << set << ", form " << static_cast<int>(form) << ", " << i;
      }
    }
  }
}

TEST(AdamKernel, AMasterFollowsAWeightThatSomebodyElseChanged) {
  constexpr std::size_t kChanged[] = {0, 5, 17, 130};
  for (const std::string& set : kernel_instruction_sets()) {
    const InstructionSet use(set);
    for (const WeightForm form : kFormsWithMaster) {
      Problem problem({ElementType::kFloat32, form, ElementType::kFloat32}, 131, 53);
      run(problem, cases()[1]);
      Problem untouched = problem;
      const std::uint16_t two = 0x4000;  // In bf16 and in fp16.
      for (const std::size_t i : kChanged) {
        std::memcpy(problem.weight.data() + i * sizeof(two), &two, sizeof(two));
      }
      run(problem, {{.lr = 1e-7}, false, 9, {}});
      run(untouched, {{.lr = 1e-7}, false, 9, {}});
      // A remainder that stays behind is at most half a unit in the last place of bf16.
      const double slack = form == WeightForm::kBFloat16AndRemainder ? 0x1p-7 : 1e-5;
      for (std::size_t i = 0; i < problem.numel; ++i) {
        if (std::find(std::begin(kChanged), std::end(kChanged), i) != std::end(kChanged)) {
          EXPECT_NEAR(problem.weight_at(i), 2.0, slack) << set << ", form " << static_cast<int>(form) << ", " << i;
        } else {
          EXPECT_EQ(problem.weight_at(i), untouched.weight_at(i)) << set << ", form " << static_cast<int>(form);
        }
      }
    }
  }
}

// Bits of a zero less a remainder would be those of a NaN.
TEST(AdamKernel, AZeroThatSomebodyElseWroteOverAWeightWithARemainderIsZero) {
  for (const std::string& set : kernel_instruction_sets()) {
    const InstructionSet use(set);
    Problem problem({ElementType::kFloat32, WeightForm::kBFloat16AndRemainder, ElementType::kFloat32}, 64, 59);
    for (std::size_t i = 0; i < problem.numel; ++i) {
      const std::uint16_t zero = i % 2 == 0 ? 0x0000 : 0x8000;
      const auto remainder = static_cast<std::int16_t>(-1 - static_cast<int>(i));
      std::memcpy(problem.weight.data() + i * 2, &zero, 2);
      std::memcpy(problem.master.data() + i * 2, &remainder, 2);
    }
    run(problem, {{.lr = 0.0}, false, 1, {}});
    for (std::size_t i = 0; i < problem.numel; ++i) {
      EXPECT_EQ(problem.weight_at(i), 0.0) << set;
    }
  }
}

TEST(AdamKernel, AnInfiniteSecondMomentStopsItsElementOnly) {
  Problem problem({}, 9, 41);
  const auto huge = 1e30F;  // Its square is no float.
  std::memcpy(problem.gradient.data() + 4 * sizeof(float), &huge, sizeof(huge));
  const Problem before = problem;
  run(problem, cases()[0]);
  EXPECT_EQ(problem.weight_at(4), before.weight_at(4));
  EXPECT_TRUE(std::isinf(problem.state_at(1, 4)));
  EXPECT_TRUE(std::isfinite(problem.state_at(1, 3)));
  EXPECT_NE(problem.state_at(1, 3), before.state_at(1, 3));
}

TEST(AdamKernel, ANaNGradientIsNotHidden) {
  for (const auto& scale : {GradientScale{}, GradientScale{.factor = 0.5, .limit = 1.0}}) {
    Problem problem({}, 9, 43);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(problem.gradient.data(), &nan, sizeof(nan));
    run(problem, {{}, false, 1, scale});
    EXPECT_TRUE(std::isnan(problem.weight_at(0)));
    EXPECT_FALSE(std::isnan(problem.weight_at(1)));
  }
}

TEST(AdamStep, StepsOfOneCountAreEqualHoweverOftenTheyAreComputed) {
  const AdamStep first = adam_step({}, 12'345);
  const AdamStep second = adam_step({}, 12'345);
  EXPECT_EQ(first.denominator.high, second.denominator.high);
  EXPECT_EQ(first.denominator.low, second.denominator.low);
  EXPECT_NE(first.denominator.low, adam_step({}, 12'346).denominator.low);
}

}  // namespace
}  // namespace spillway::optimizer::adam_kernel_test

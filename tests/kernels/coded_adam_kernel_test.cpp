#include <spillway/optimizer/coded_adam_kernel.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "kernel_problem.hpp"

namespace spillway::optimizer::coded_adam_kernel_test {
namespace {

using kernel_test::all_types;
using kernel_test::Problem;

struct Field {
  explicit Field(std::size_t numel) : codes(numel), scales(dynamic_blocks(numel)) {}
  [[nodiscard]] CodedField view() { return {codes.data(), scales.data()}; }
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
};

struct Coded {
  Coded(const KernelTypes& types, std::size_t numel)
      : problem(types, numel, 11), exp_avg(numel), exp_avg_sq(numel), largest(numel) {}

  void step(const AdamStep& constants, bool amsgrad, unsigned threads) {
    CodedAdamTensor coded{problem.adam(constants, false, 0, problem.numel), exp_avg.view(), exp_avg_sq.view(),
                          amsgrad ? largest.view() : CodedField{}};
    coded.tensor.exp_avg = coded.tensor.exp_avg_sq = nullptr;
    coded_adam_update({&coded, 1}, problem.types, {}, offload::Parallel({.threads = threads}));
  }

  Problem problem;
  Field exp_avg, exp_avg_sq, largest;
};

// The same in whole passes: decode all, one step in float32, encode all.
void step_pass_by_pass(Coded& coded, const AdamStep& constants, bool amsgrad) {
  const offload::Parallel parallel({.threads = 1});
  const std::size_t numel = coded.problem.numel;
  Field* const fields[] = {&coded.exp_avg, &coded.exp_avg_sq, &coded.largest};
  std::vector<float> values[3];
  const auto map = [](std::size_t f) { return f == 0 ? DynamicMap::kSigned : DynamicMap::kUnsigned; };
  for (std::size_t f = 0; f < 3; ++f) {
    values[f].resize(numel);
    decode_dynamic(fields[f]->codes, fields[f]->scales, map(f), values[f], parallel);
  }
  AdamTensor tensor = coded.problem.adam(constants, amsgrad, 0, numel);
  tensor.exp_avg = values[0].data();
  tensor.exp_avg_sq = values[1].data();
  tensor.max_exp_avg_sq = amsgrad ? values[2].data() : nullptr;
  KernelTypes types = coded.problem.types;
  types.state = ElementType::kFloat32;
  adam_update({&tensor, 1}, types, {}, parallel);
  for (std::size_t f = 0; f < (amsgrad ? 3U : 2U); ++f) {
    encode_dynamic(values[f], map(f), fields[f]->codes, fields[f]->scales, parallel);
  }
}

TEST(CodedAdamKernel, OnePassGivesTheBitsOfPassByPass) {
  for (const KernelTypes& types : all_types()) {
    for (const bool amsgrad : {false, true}) {
      Coded one(types, 10'007);
      Coded passes(types, 10'007);
      for (std::uint64_t step = 1; step <= 3; ++step) {
        const AdamStep constants = adam_step({.weight_decay = 0.01, .decoupled = true}, step);
        one.step(constants, amsgrad, 3);
        step_pass_by_pass(passes, constants, amsgrad);
      }
      ASSERT_TRUE(one.problem.same_bits(passes.problem)) << kernel_test::name_of(types);
      ASSERT_EQ(one.exp_avg.codes, passes.exp_avg.codes);
      ASSERT_EQ(one.exp_avg_sq.codes, passes.exp_avg_sq.codes);
      ASSERT_EQ(one.exp_avg_sq.scales, passes.exp_avg_sq.scales);
      ASSERT_EQ(one.largest.codes, passes.largest.codes);
    }
  }
}

TEST(CodedAdamKernel, AllZeroFieldsAreNoState) {
  Coded coded({}, 700);
  Problem plain({}, 700, 11);
  std::fill(plain.state[0].begin(), plain.state[0].end(), std::byte{0});
  std::fill(plain.state[1].begin(), plain.state[1].end(), std::byte{0});
  const AdamStep constants = adam_step({}, 1);
  coded.step(constants, false, 1);
  const AdamTensor tensor = plain.adam(constants, false, 0, 700);
  adam_update({&tensor, 1}, {}, {}, offload::Parallel({.threads = 1}));
  EXPECT_EQ(coded.problem.weight, plain.weight);
}

// Minimises the sum of (w - target)² with gradients that differ by a factor of 1,000 within a block.
TEST(CodedAdamKernel, DescendsLikeFullPrecision) {
  constexpr std::size_t kNumel = 512;
  std::vector<float> target(kNumel), gradient(kNumel);
  std::vector<float> weights[2] = {std::vector<float>(kNumel), std::vector<float>(kNumel)};
  std::vector<float> m(kNumel), v(kNumel);
  Field exp_avg(kNumel), exp_avg_sq(kNumel);
  const offload::Parallel parallel({.threads = 1});
  for (std::size_t i = 0; i < kNumel; ++i) {
    target[i] = std::sin(static_cast<float>(i)) * (i % 2 == 0 ? 1.0F : 1e-3F);
  }
  double loss[2] = {};
  for (std::uint64_t step = 1; step <= 300; ++step) {
    const AdamStep constants = adam_step({.lr = 1e-2}, step);
    for (std::size_t k = 0; k < 2; ++k) {
      loss[k] = 0.0;
      for (std::size_t i = 0; i < kNumel; ++i) {
        gradient[i] = 2.0F * (weights[k][i] - target[i]);
        loss[k] += std::pow(static_cast<double>(weights[k][i]) - target[i], 2.0);
      }
      AdamTensor tensor{.numel = kNumel, .gradient = gradient.data(), .weight = weights[k].data(), .step = &constants};
      if (k == 0) {
        tensor.exp_avg = m.data();
        tensor.exp_avg_sq = v.data();
        adam_update({&tensor, 1}, {}, {}, parallel);
      } else {
        const CodedAdamTensor coded{tensor, exp_avg.view(), exp_avg_sq.view(), {}};
        coded_adam_update({&coded, 1}, {}, {}, parallel);
      }
    }
  }
  EXPECT_LT(loss[0], 1e-2);
  EXPECT_LT(loss[1], 1e-2);
}

}  // namespace
}  // namespace spillway::optimizer::coded_adam_kernel_test

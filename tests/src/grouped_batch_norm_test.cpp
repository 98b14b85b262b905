#include <spillway/app/encoders/grouped_batch_norm.hpp>

#include <vector>

#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/batchnorm.h>

namespace spillway::app::grouped_batch_norm_test {
namespace {

constexpr std::int64_t kFeatures = 3;

// The same sums, taken by the same kernel over the same rows: only the running statistics are combined otherwise.
constexpr double kRelative = 1e-5;
constexpr double kAbsolute = 1e-6;

bool close(const at::Tensor& a, const at::Tensor& b) { return at::allclose(a, b, kRelative, kAbsolute); }

at::Tensor rows(std::int64_t count) {
  at::manual_seed(1);
  return at::randn({count, kFeatures, 4, 4}) * 3.0 + 1.0;
}

TEST(GroupedBatchNorm, IsTorchsBatchNormWithOneGroup) {
  GroupedBatchNorm ours(kFeatures, 1);
  torch::nn::BatchNorm2dImpl torchs(torch::nn::BatchNorm2dOptions{kFeatures});
  for (int step = 0; step < 3; ++step) {
    const at::Tensor input = rows(6) + step;
    EXPECT_TRUE(close(ours.forward(input), torchs.forward(input)));
  }
  EXPECT_TRUE(close(ours.running_mean, torchs.running_mean));
  EXPECT_TRUE(close(ours.running_var, torchs.running_var));
  ours.eval();
  torchs.eval();
  EXPECT_TRUE(close(ours.forward(rows(2)), torchs.forward(rows(2))));
}

TEST(GroupedBatchNorm, NormalisesEveryGroupByItself) {
  GroupedBatchNorm grouped(kFeatures, 2);
  GroupedBatchNorm whole(kFeatures, 1);
  const at::Tensor input = rows(8);
  const at::Tensor output = grouped.forward(input);
  EXPECT_TRUE(close(output.narrow(0, 0, 4), whole.forward(input.narrow(0, 0, 4))));
  EXPECT_TRUE(close(output.narrow(0, 4, 4), whole.forward(input.narrow(0, 4, 4))));
}

TEST(GroupedBatchNorm, MovesItsRunningStatisticsOnceByTheMeanOfTheGroups) {
  GroupedBatchNorm grouped(kFeatures, 2);
  const at::Tensor input = rows(8);
  grouped.forward(input);
  at::Tensor mean = input.mean({0, 2, 3});
  at::Tensor variance = (input.narrow(0, 0, 4).var({0, 2, 3}, true) + input.narrow(0, 4, 4).var({0, 2, 3}, true)) / 2;
  EXPECT_TRUE(close(grouped.running_mean, mean * 0.1));
  EXPECT_TRUE(close(grouped.running_var, variance * 0.1 + 0.9));
}

TEST(GroupedBatchNorm, PassesTheGradientOfEveryGroupToInputAndParameters) {
  GroupedBatchNorm grouped(kFeatures, 2);
  GroupedBatchNorm whole(kFeatures, 1);
  const at::Tensor weights = rows(8).square();
  const at::Tensor input = rows(8).add(1).requires_grad_();
  (grouped.forward(input) * weights).sum().backward();
  const at::Tensor again = input.detach().clone().requires_grad_();
  for (const std::int64_t first : {0, 4}) {
    (whole.forward(again.narrow(0, first, 4)) * weights.narrow(0, first, 4)).sum().backward();
  }
  EXPECT_GT(input.grad().abs().max().item<double>(), 1e-3);
  EXPECT_TRUE(close(input.grad(), again.grad()));
  EXPECT_TRUE(close(grouped.weight.grad(), whole.weight.grad()));
  EXPECT_TRUE(close(grouped.bias.grad(), whole.bias.grad()));
}

TEST(GroupedBatchNorm, TakesBatchesThatTheGroupsDoNotDivide) {
  GroupedBatchNorm grouped(kFeatures, 4);
  GroupedBatchNorm whole(kFeatures, 1);
  const at::Tensor input = rows(10);
  const at::Tensor output = grouped.forward(input);
  EXPECT_EQ(output.sizes(), input.sizes());
  EXPECT_TRUE(close(output.narrow(0, 0, 3), whole.forward(input.narrow(0, 0, 3)))) << "3, 3, 2 and 2 rows";
}

TEST(GroupedBatchNorm, HasFewerGroupsWhereEachWouldHaveASingleRow) {
  GroupedBatchNorm grouped(kFeatures, 4);
  GroupedBatchNorm whole(kFeatures, 1);
  EXPECT_TRUE(close(grouped.forward(rows(3)), whole.forward(rows(3))));
}

TEST(GroupedBatchNorm, StaysFiniteForASingleRowAndLearnsNothingFromIt) {
  GroupedBatchNorm grouped(kFeatures, 2);
  const at::Tensor output = grouped.forward(rows(1).mean({2, 3}));
  EXPECT_TRUE(at::isfinite(output).all().item<bool>());
  EXPECT_TRUE(at::equal(grouped.running_mean, GroupedBatchNorm(kFeatures, 2).running_mean));
}

TEST(GroupedBatchNorm, LeavesItsStatisticsAloneInEvaluationMode) {
  GroupedBatchNorm grouped(kFeatures, 2);
  grouped.forward(rows(8));
  const at::Tensor mean = grouped.running_mean.clone();
  grouped.eval();
  grouped.forward(rows(8) + 5);
  EXPECT_TRUE(at::equal(grouped.running_mean, mean));
}

}  // namespace
}  // namespace spillway::app::grouped_batch_norm_test

#include <cmath>
#include <limits>
#include <string>

#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logsumexp.h>
#include <gtest/gtest.h>

#include <spillway/queue/online_log_sum_exp.hpp>
#include <support/golden_torch.hpp>

namespace spillway::queue::online_log_sum_exp_test {
namespace {

using test::GoldenFile;
using test::scalar;
using test::tensor;

double max_error(const at::Tensor& got, const at::Tensor& wanted) {
  return got.to(at::kDouble).sub(wanted).abs().max().item<double>();
}

/// Both or neither -inf, and otherwise close.
void expect_close(const at::Tensor& got, const at::Tensor& wanted, double tolerance) {
  const at::Tensor finite = at::isfinite(wanted);
  EXPECT_TRUE(at::isfinite(got).equal(finite)) << got << wanted;
  EXPECT_LE(max_error(got.masked_fill(finite.logical_not(), 0), wanted.masked_fill(finite.logical_not(), 0)),
            tolerance);
  EXPECT_FALSE(got.isnan().any().item<bool>());
}

void expect_jumps(at::ScalarType dtype, double tolerance) {
  const GoldenFile file = GoldenFile::open("08b_online_lse_jumps");
  const at::Tensor logits = tensor(file, "logits");  // [segment, row, 2]
  OnlineLogSumExp state(3, dtype);
  for (std::int64_t segment = 0; segment < 3; ++segment) {
    SCOPED_TRACE(segment);
    at::Tensor tile = logits[segment].to(dtype);
    const at::Tensor rescale = state.fold(tile);
    expect_close(state.maximum().squeeze(1), tensor(file, "running_max")[segment], 0.0);
    expect_close(state.sum().squeeze(1), tensor(file, "running_sum")[segment], tolerance);
    EXPECT_TRUE(at::isfinite(rescale).all().item<bool>());
    EXPECT_TRUE(at::isfinite(tile).all().item<bool>());
  }
  expect_close(state.value().squeeze(1), tensor(file, "lse"), tolerance * 100);
}

TEST(OnlineLogSumExp, SurvivesJumpsAndMaskedTilesInDouble) { expect_jumps(at::kDouble, 1e-14); }

TEST(OnlineLogSumExp, SurvivesJumpsAndMaskedTilesInFloat) { expect_jumps(at::kFloat, 1e-6); }

void expect_running_state(const at::Tensor& order, const std::string& prefix) {
  const GoldenFile file = GoldenFile::open("08_stream_segments");
  const double temperature = scalar(file, "T");
  const at::Tensor q = tensor(file, "q").to(at::kDouble);
  const at::Tensor all = q.matmul(tensor(file, "bank").to(at::kDouble).t()).div(temperature);
  const at::Tensor segment_rows = tensor(file, "seg_rows");
  const std::int64_t step = segment_rows[0].item<std::int64_t>();

  OnlineLogSumExp state(q.size(0), at::kDouble);
  at::Tensor positive = q.mul(tensor(file, "k").to(at::kDouble)).sum(1, true).div(temperature);
  (void)state.fold(positive);
  for (std::int64_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    const std::int64_t segment = order[i].item<std::int64_t>();
    at::Tensor tile = all.narrow(1, segment * step, segment_rows[segment].item<std::int64_t>()).clone();
    (void)state.fold(tile);
    EXPECT_LE(max_error(state.maximum().squeeze(1), tensor(file, prefix + "running_max")[i]), 1e-12);
    EXPECT_LE(max_error(state.sum().squeeze(1), tensor(file, prefix + "running_sum")[i]), 1e-12);
  }
  EXPECT_LE(max_error(state.value().squeeze(1), tensor(file, "lse")), 1e-12);
}

TEST(OnlineLogSumExp, GivesTheGoldenRunningStateInOrder) {
  at::Tensor order = at::full({4}, 0, at::TensorOptions(at::kLong));
  for (std::int64_t i = 0; i < 4; ++i) order[i].fill_(i);
  expect_running_state(order, "");
}

TEST(OnlineLogSumExp, GivesTheGoldenRunningStateInPermutedOrder) {
  expect_running_state(tensor(GoldenFile::open("08_stream_segments"), "perm"), "perm_");
}

TEST(OnlineLogSumExp, IsMinusInfinityBeforeTheFirstLogit) {
  const OnlineLogSumExp state(2, at::kFloat);
  EXPECT_TRUE(state.value().eq(-std::numeric_limits<double>::infinity()).all().item<bool>());
  EXPECT_TRUE(state.sum().eq(0).all().item<bool>());
}

TEST(OnlineLogSumExp, SaysHowEarlierWeightsShrink) {
  OnlineLogSumExp state(1, at::kDouble);
  at::Tensor first = at::full({1, 1}, 1.0, at::TensorOptions(at::kDouble));
  at::Tensor second = at::full({1, 1}, 3.0, at::TensorOptions(at::kDouble));
  EXPECT_EQ(state.fold(first).item<double>(), 0.0);
  EXPECT_EQ(first.item<double>(), 1.0);
  EXPECT_DOUBLE_EQ(state.fold(second).item<double>(), std::exp(-2.0));
  EXPECT_EQ(second.item<double>(), 1.0);
}

}  // namespace
}  // namespace spillway::queue::online_log_sum_exp_test

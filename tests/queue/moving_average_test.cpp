#include <cmath>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <queue/numerics.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/moving_average.hpp>
#include <support/golden_torch.hpp>

namespace spillway::queue::moving_average_test {
namespace {

using test::GoldenFile;
using test::max_error;
using test::random_rows;
using test::scalar;
using test::tensor;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(MovingAverage, FollowsTheClosedFormForAThousandSteps) {
  const GoldenFile file = GoldenFile::open("15_ema");
  const at::Tensor followed = tensor(file, "k0").clone();
  const at::Tensor average = at::zeros({64});
  MovingAverage moving({average}, {followed}, scalar(file, "m"));
  EXPECT_TRUE(average.equal(followed));  // Starts there.
  followed.copy_(tensor(file, "q"));
  for (int step = 0; step < static_cast<int>(scalar(file, "steps")); ++step) moving.follow();
  EXPECT_LE(max_error(average, tensor(file, "exact")), 2 * scalar(file, "fp32_err"));
}

TEST(MovingAverage, FollowsMastersWhereParametersAreOf16BitsAndPublishesTheirRounding) {
  const GoldenFile file = GoldenFile::open("15_ema");
  const at::Tensor exact = tensor(file, "exact");
  const at::Tensor start = tensor(file, "k0");
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(c10::toString(dtype));
    const at::Tensor average = at::zeros({64}, dtype);
    const at::Tensor standing_still = start.to(dtype);  // The control: the same steps in 16 bits.
    MovingAverage moving({average}, {start}, scalar(file, "m"));
    for (int step = 0; step < static_cast<int>(scalar(file, "steps")); ++step) {
      moving.follow(std::vector{tensor(file, "q")});
      standing_still.lerp_(tensor(file, "q").to(dtype), 1.0 - scalar(file, "m"));
    }
    EXPECT_LE(max_error(moving.masters()[0], exact), 2 * scalar(file, "fp32_err"));
    EXPECT_TRUE(average.equal(moving.masters()[0].to(dtype)));
    EXPECT_TRUE(start.equal(tensor(file, "k0")));
    EXPECT_GT(max_error(standing_still, exact), 10 * max_error(average, exact));
  }
}

TEST(MovingAverage, KeepsSeveralTensorsOfSeveralDtypes) {
  const std::vector<at::Tensor> followed{random_rows(3, 4, 1), random_rows(5, 2, 2, at::kDouble),
                                         random_rows(2, 2, 3, at::kBFloat16)};
  std::vector<at::Tensor> average;
  for (const at::Tensor& each : followed) average.push_back(at::ones(each.sizes(), each.options()).requires_grad_());
  MovingAverage moving(average, followed, 0.75);
  EXPECT_FALSE(average[0].requires_grad());
  for (const at::Tensor& each : followed) each.add_(1);
  moving.follow();
  EXPECT_LE(max_error(average[0], random_rows(3, 4, 1) + 0.25), 1e-6);
  EXPECT_LE(max_error(average[1], random_rows(5, 2, 2, at::kDouble) + 0.25), 1e-15);
  moving.set_momentum(0.0);
  moving.follow();
  EXPECT_TRUE(average[2].equal(followed[2]));
  // What a checkpoint brings back.
  moving.masters()[2].fill_(3.0);
  moving.publish();
  EXPECT_TRUE(average[2].eq(3.0).all().item<bool>());
}

TEST(ByolMomentum, GoesAlongHalfACosine) {
  const GoldenFile file = GoldenFile::open("15_ema");
  const at::Tensor schedule = tensor(file, "byol_m_schedule_base0996_T100");
  for (std::uint64_t step = 0; step <= 100; ++step) {
    EXPECT_NEAR(byol_momentum(0.996, step, 100), schedule[static_cast<std::int64_t>(step)].item<double>(), 1e-14);
  }
}

TEST(MovingAverage, RefusesWhatDoesNotFit) {
  const at::Tensor good = at::ones({2, 3});
  const auto refused = [](const std::vector<at::Tensor>& average, const std::vector<at::Tensor>& followed,
                          double momentum, const char* text) {
    EXPECT_THAT([&] { MovingAverage(average, followed, momentum); }, ThrowsMessage<ConfigError>(HasSubstr(text)));
  };
  refused({good}, {}, 0.9, "0 tensors to follow for 1");
  refused({good}, {at::ones({3, 2})}, 0.9, "tensor 0 is [2, 3] float on cpu, it follows [3, 2]");
  refused({good}, {at::ones({2, 3}, at::kLong)}, 0.9, "long");
  refused({good}, {at::Tensor()}, 0.9, "undefined");
  refused({good}, {good}, 1.5, "momentum is 1.5");
  refused({good}, {good}, std::numeric_limits<double>::quiet_NaN(), "wanted 0 to 1");
  MovingAverage moving({good.clone()}, {good}, 0.9);
  EXPECT_THAT([&] { moving.follow(std::vector{at::ones({2})}); }, ThrowsMessage<ConfigError>(HasSubstr("follows [2]")));
}

}  // namespace
}  // namespace spillway::queue::moving_average_test

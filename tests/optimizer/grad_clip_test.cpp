#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/utils/clip_grad.h>

#include <spillway/offload/error.hpp>
#include <spillway/optimizer/grad_clip.hpp>

#include "support/errors.hpp"

namespace spillway::test::grad_clip_test {
namespace {

using optimizer::clip_grad_norm_;
using optimizer::clip_grad_value_;
using optimizer::gradient_norm;

at::Tensor with_gradient(at::Tensor gradient) {
  at::Tensor parameter = at::zeros(gradient.sizes(), gradient.options());
  parameter.requires_grad_().mutable_grad() = std::move(gradient);
  return parameter;
}

std::vector<at::Tensor> random_parameters(at::ScalarType dtype) {
  std::vector<at::Tensor> parameters;
  std::uint64_t seed = 0;
  for (const std::int64_t numel : {1, 7, 16383, 16384, 16385, 70001, 0}) {
    const auto generator = at::detail::createCPUGenerator(++seed);
    parameters.push_back(with_gradient(at::randn({numel}, generator, at::TensorOptions(at::kDouble)).to(dtype)));
  }
  parameters.push_back(at::zeros({5}));  // Without a gradient.
  return parameters;
}

TEST(GradientNorm, AgreesWithLibTorchs) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    std::vector<at::Tensor> parameters = random_parameters(dtype);
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : parameters) {
      if (parameter.grad().defined()) all.push_back(parameter.grad().to(at::kDouble));
    }
    const double wanted = at::cat(all).norm().item<double>();
    EXPECT_NEAR(gradient_norm(parameters), wanted, 1e-12 * wanted);
    if (dtype == at::kFloat) {
      const double theirs = torch::nn::utils::clip_grad_norm_(parameters, std::numeric_limits<double>::infinity());
      EXPECT_NEAR(theirs, wanted, 1e-6 * wanted);
    }
  }
}

TEST(GradientNorm, DependsNeitherOnThreadsNorOnStrides) {
  const std::vector<at::Tensor> parameters = random_parameters(at::kFloat);
  const double one = gradient_norm(parameters);
  const int threads = at::get_num_threads();
  at::set_num_threads(threads == 1 ? 2 : 1);
  EXPECT_EQ(gradient_norm(parameters), one);
  at::set_num_threads(threads);
  const at::Tensor matrix = parameters[5].grad().narrow(0, 0, 70000).view({70, 1000});
  EXPECT_EQ(gradient_norm(std::vector{with_gradient(matrix.t().contiguous().t())}),
            gradient_norm(std::vector{with_gradient(matrix.contiguous())}));
}

TEST(ClipGradNorm, ScalesDownToTheLimitAndLeavesSmallerOnesAlone) {
  std::vector<at::Tensor> parameters{with_gradient(at::full({4}, 3.0)), with_gradient(at::full({4}, 4.0))};
  EXPECT_EQ(clip_grad_norm_(parameters, 20.0), 10.0);
  EXPECT_EQ(parameters[0].grad()[0].item<float>(), 3.0F);
  EXPECT_EQ(clip_grad_norm_(parameters, 1.0), 10.0);
  EXPECT_FLOAT_EQ(parameters[0].grad()[0].item<float>(), static_cast<float>(3.0 / (10.0 + 1e-6)));
  EXPECT_NEAR(gradient_norm(parameters), 1.0, 1e-6);
}

TEST(ClipGradNorm, ShowsWhatIsNotFinite) {
  std::vector<at::Tensor> parameters{with_gradient(at::full({4}, std::numeric_limits<float>::infinity()))};
  EXPECT_TRUE(std::isinf(clip_grad_norm_(parameters, 1.0)));
  parameters[0].mutable_grad() = at::full({4}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(clip_grad_norm_(parameters, 1.0)));
}

TEST(ClipGradValue, LimitsEveryElement) {
  std::vector<at::Tensor> parameters{with_gradient(at::full({2}, -3.0)), with_gradient(at::full({2}, 0.25)),
                                     at::zeros({3})};
  clip_grad_value_(parameters, 0.5);
  EXPECT_EQ(parameters[0].grad()[1].item<double>(), -0.5);
  EXPECT_EQ(parameters[1].grad()[1].item<double>(), 0.25);
}

TEST(Clipping, RefusesLimitsThatMakeNoSenseAndSparseGradients) {
  std::vector<at::Tensor> parameters{with_gradient(at::full({2, 2}, 1.0))};
  EXPECT_THROW(clip_grad_norm_(parameters, 0.0), ConfigError);
  EXPECT_THROW(clip_grad_norm_(parameters, std::nan("")), ConfigError);
  EXPECT_THROW(clip_grad_value_(parameters, -1.0), ConfigError);
  parameters[0].mutable_grad() = parameters[0].grad().to_sparse();
  EXPECT_THAT(message_of<Error>([&] { (void)gradient_norm(parameters); }),
              ::testing::HasSubstr("parameter 0 is sparse"));
}

}  // namespace
}  // namespace spillway::test::grad_clip_test

#include <spillway/app/methods/training_method.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <spillway/app/config/config_keys.hpp>

namespace spillway::app::methods_test {
namespace {

constexpr ImageGeometry kGeometry{4, 2};
constexpr std::int64_t kRows = 6;

Config small_config(Method method) {
  Config config;
  apply_method_defaults(config, method);
  config.encoder.kind = EncoderKind::kMlp;
  config.encoder.hidden = {16};
  config.contrastive.projection_hidden_dim = 16;
  config.contrastive.projection_dim = 8;
  config.contrastive.predictor_hidden_dim = 4;
  config.contrastive.queue_size = 20;
  return config;
}

std::unique_ptr<TrainingMethod> make(const Config& config) {
  offload::TiersOptions options;
  options.log = [](const std::string&) {};
  at::manual_seed(3);
  return make_method(config, kGeometry, std::make_shared<offload::Tiers>(std::move(options)));
}

ViewPair random_batch() {
  at::manual_seed(4);
  return {.view0 = at::rand({kRows, 1, 2, 4}),
          .view1 = at::rand({kRows, 1, 2, 4}),
          .labels = at::tensor({0, 1, 0, 2, 1, 0}, at::kLong)};
}

class AnyMethodTest : public ::testing::TestWithParam<Method> {};

TEST_P(AnyMethodTest, GivesEveryParameterAGradient) {
  const auto method = make(small_config(GetParam()));
  (void)method->loss(random_batch());  // MoCo's bank starts empty.
  method->finish_window(true);
  const at::Tensor loss = method->loss(random_batch());
  loss.backward();
  EXPECT_EQ(loss.dim(), 0);
  for (const NamedTensor& parameter : method->parameters()) {
    ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
    EXPECT_TRUE(parameter.tensor.grad().isfinite().all().item<bool>()) << parameter.name;
  }
}

// At least as far as a small step against the gradient goes.
TEST_P(AnyMethodTest, LowersItsLossByGradientDescent) {
  const auto method = make(small_config(GetParam()));
  (void)method->loss(random_batch());
  method->finish_window(true);
  const at::Tensor before = method->loss(random_batch());
  before.backward();
  {
    const at::NoGradGuard no_grad;
    for (const NamedTensor& parameter : method->parameters()) {
      parameter.tensor.sub_(parameter.tensor.grad(), 0.01);
    }
  }
  EXPECT_LT(method->loss(random_batch()).item<double>(), before.item<double>());
}

TEST_P(AnyMethodTest, NamesEachParameterOnce) {
  std::vector<std::string> names;
  for (const NamedTensor& parameter : make(small_config(GetParam()))->parameters()) names.push_back(parameter.name);
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

TEST_P(AnyMethodTest, HasABankIfTheConfigurationSaysSo) {
  const Config config = small_config(GetParam());
  EXPECT_EQ(make(config)->bank() != nullptr, config.has_bank());
}

INSTANTIATE_TEST_SUITE_P(All, AnyMethodTest,
                         ::testing::Values(Method::kMoco, Method::kSimClr, Method::kSupCon, Method::kByol,
                                           Method::kSimSiam),
                         [](const auto& test) { return std::string(to_string(test.param)); });

/// Rows of both views, view 0 first, of length 1.
at::Tensor projected(TrainingMethod& method, const ViewPair& batch) {
  return method.network().project(at::cat({batch.view0, batch.view1})).to(at::kDouble);
}

/// -log p of every row's positives among all other rows, the mean over the positives of a row, then over the rows.
double naive_loss(const at::Tensor& rows, const at::Tensor& labels, double temperature) {
  const std::int64_t n = rows.size(0);
  const at::Tensor self = at::eye(n, rows.options()).to(at::kBool);
  const at::Tensor log_p = rows.mm(rows.t()).div(temperature).masked_fill(self, -1e30).log_softmax(1);
  const at::Tensor positive = labels.unsqueeze(0).eq(labels.unsqueeze(1)).logical_and(self.logical_not());
  return log_p.masked_fill(positive.logical_not(), 0.0).sum(1).div(positive.sum(1)).mean().neg().item<double>();
}

TEST(SimClr, TellsTheOtherViewFromAllOtherRows) {
  const Config config = small_config(Method::kSimClr);
  const auto method = make(config);
  const ViewPair batch = random_batch();
  const at::Tensor samples = at::tensor({0, 1, 2, 3, 4, 5}, at::kLong);
  const double expected =
      naive_loss(projected(*method, batch), at::cat({samples, samples}), config.contrastive.temperature);
  EXPECT_NEAR(method->loss(batch).item<double>(), expected, 1e-5);
}

TEST(SupCon, TellsRowsOfTheLabelFromAllOthers) {
  const Config config = small_config(Method::kSupCon);
  const auto method = make(config);
  const ViewPair batch = random_batch();
  const double expected =
      naive_loss(projected(*method, batch), at::cat({batch.labels, batch.labels}), config.contrastive.temperature);
  EXPECT_NEAR(method->loss(batch).item<double>(), expected, 1e-5);
}

/// What the predictor makes of projections, from its parameters.
at::Tensor predicted(const TrainingMethod& method, const at::Tensor& projection) {
  std::map<std::string, at::Tensor> of;
  for (const NamedTensor& parameter : method.parameters()) of[parameter.name] = parameter.tensor;
  const at::Tensor inside =
      at::batch_norm(projection.matmul(of["predictor.fc1.weight"].t()), of["predictor.bn1.weight"],
                     of["predictor.bn1.bias"], {}, {}, /*training=*/true, 0.1, 1e-5, false);
  return at::relu(inside).matmul(of["predictor.fc2.weight"].t()).add(of["predictor.fc2.bias"]);
}

class PredictiveTest : public ::testing::TestWithParam<Method> {};

// At the start BYOL's target equals the network, so that both methods differ by a factor and a constant alone. The
// targets are constants: with a gradient through them too, those of the network would be others.
TEST_P(PredictiveTest, PredictsTheOtherViewFromEachAndTakesItAsAConstant) {
  const auto method = make(small_config(GetParam()));
  const auto twin = make(small_config(GetParam()));
  const ViewPair batch = random_batch();
  const at::Tensor loss = method->loss(batch);
  loss.backward();

  const at::Tensor z0 = twin->network().projection(batch.view0);
  const at::Tensor z1 = twin->network().projection(batch.view1);
  const at::Tensor cosines = (at::cosine_similarity(predicted(*twin, z0), z1.detach()) +
                              at::cosine_similarity(predicted(*twin, z1), z0.detach()))
                                 .mean();
  const at::Tensor expected = GetParam() == Method::kByol ? 4 - 2 * cosines : cosines / -2;
  expected.backward();
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-5);
  const auto got = method->parameters();
  const auto wanted = twin->parameters();
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(at::allclose(got[i].tensor.grad(), wanted[i].tensor.grad(), 1e-3, 1e-5)) << got[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Both, PredictiveTest, ::testing::Values(Method::kByol, Method::kSimSiam),
                         [](const auto& test) { return std::string(to_string(test.param)); });

/// The loss of a network that has moved away from its target, at once and after the window's end.
std::pair<double, double> losses_around_window_end(double momentum, bool stepped) {
  Config config = small_config(Method::kByol);
  config.contrastive.momentum = momentum;
  const auto method = make(config);
  {
    const at::NoGradGuard no_grad;
    at::manual_seed(9);
    for (const NamedTensor& parameter : method->network().parameters()) {
      parameter.tensor.add_(at::rand(parameter.tensor.sizes()), 0.2);
    }
  }
  const double apart = method->loss(random_batch()).item<double>();
  EXPECT_EQ(method->loss(random_batch()).item<double>(), apart) << "the target moved within a window";
  method->finish_window(stepped);
  return {apart, method->loss(random_batch()).item<double>()};
}

TEST(Byol, FollowsWithItsTargetOnceAWindowUnlessTheStepWasSkipped) {
  const auto [apart, followed] = losses_around_window_end(0.0, true);
  EXPECT_NE(followed, apart);
  const auto [before, skipped] = losses_around_window_end(0.0, false);
  EXPECT_EQ(skipped, before);
  const auto [start, still] = losses_around_window_end(1.0, true);
  EXPECT_EQ(still, start) << "momentum is the share that stays";
}

TEST(Heads, HaveTheBatchNormsOfTheirKind) {
  const auto names = [](HeadKind kind) {
    Config config = small_config(Method::kSimClr);
    config.contrastive.projection_head = kind;
    std::string joined;
    for (const NamedTensor& parameter : make(config)->parameters()) {
      if (parameter.name.starts_with("head.")) joined += parameter.name.substr(5) + " ";
    }
    return joined;
  };
  EXPECT_EQ(names(HeadKind::kMlp), "fc1.weight fc1.bias fc2.weight fc2.bias ");
  EXPECT_EQ(names(HeadKind::kBatchNorm), "fc1.weight bn1.weight bn1.bias fc2.weight fc2.bias ");
  EXPECT_EQ(names(HeadKind::kBatchNormOutput), "fc1.weight bn1.weight bn1.bias fc2.weight bn2.weight bn2.bias ");
}

}  // namespace
}  // namespace spillway::app::methods_test

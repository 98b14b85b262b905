// The losses within a batch against tables of all logits that autograd differentiates, and what they refuse.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/diagonal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <queue/bank_fixture.hpp>
#include <queue/numerics.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/contrastive_loss.hpp>
#include <spillway/queue/cosine_loss.hpp>

namespace spillway::queue::contrastive_loss_test {
namespace {

using test::gradient_error;
using test::max_error;
using test::random_rows;
using test::relative_error;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor unit_rows(std::int64_t rows, std::int64_t dim, std::uint64_t seed, at::ScalarType dtype = at::kDouble) {
  return test::normalised(random_rows(rows, dim, seed, at::kDouble)).to(dtype);
}

at::Tensor number(double value) { return at::full({}, value, at::kDouble); }

/// SupCon from a table of all logits: [V N] losses in the order of the views.
at::Tensor dense_sup_con(const at::Tensor& features, const at::Tensor& labels, const at::Tensor& temperature,
                         double base_temperature, bool inside) {
  const at::Tensor rows = features.transpose(0, 1).reshape({-1, features.size(2)});
  const at::Tensor classes = labels.repeat({features.size(1)});
  const at::Tensor own = at::eye(rows.size(0), at::kBool);
  const at::Tensor positives = classes.unsqueeze(1).eq(classes).logical_and(own.logical_not());
  const at::Tensor logits = rows.matmul(rows.t()).div(temperature).masked_fill(own, -kInfinity);
  const at::Tensor count = positives.sum(1).to(at::kDouble);
  const at::Tensor all = at::logsumexp(logits, {1});
  const at::Tensor of_positives =
      inside ? at::logsumexp(logits.masked_fill(positives.logical_not(), -kInfinity), {1}).sub(count.log())
             : logits.masked_fill(positives.logical_not(), 0).sum(1).div(count);
  return all.sub(of_positives).mul(temperature.div(base_temperature)).masked_fill(count.eq(0), 0);
}

at::Tensor dense_clip(const at::Tensor& images, const at::Tensor& texts, const at::Tensor& log_scale) {
  const at::Tensor logits = images.matmul(texts.t()).mul(log_scale.exp());
  const at::Tensor matching = at::diagonal(logits);
  return at::cat({at::logsumexp(logits, {1}).sub(matching), at::logsumexp(logits, {0}).sub(matching)});
}

TEST(NtXent, EqualsTheTableOfLogitsOverSeveralTiles) {
  const at::Tensor view0 = unit_rows(700, 12, 1).requires_grad_();
  const at::Tensor view1 = unit_rows(700, 12, 2).requires_grad_();
  const at::Tensor temperature = number(0.1).requires_grad_();
  const ContrastiveResult got = nt_xent(view0, view1, temperature);
  got.loss.backward();
  const std::vector<at::Tensor> gradients{view0.grad(), view1.grad(), temperature.grad()};
  for (const at::Tensor& each : {view0, view1, temperature}) each.mutable_grad().reset();

  const at::Tensor wanted =
      dense_sup_con(at::stack({view0, view1}, 1), at::arange(700), temperature, 1.0, true).div(temperature);
  wanted.mean().backward();
  EXPECT_LE(max_error(got.rows, wanted), 1e-12);
  EXPECT_LE(max_error(gradients[0], view0.grad()), 1e-12);
  EXPECT_LE(max_error(gradients[1], view1.grad()), 1e-12);
  EXPECT_LE(max_error(gradients[2], temperature.grad()), 1e-11);
}

TEST(SupCon, EqualsTheTableOfLogitsOverSeveralTiles) {
  const at::Tensor labels = at::arange(400).remainder(37);
  for (const bool inside : {false, true}) {
    SCOPED_TRACE(inside ? "in" : "out");
    const at::Tensor features = unit_rows(1200, 12, 1).view({400, 3, 12}).requires_grad_();
    const at::Tensor temperature = number(0.1).requires_grad_();
    const SupConOptions options{.form = inside ? SupConOptions::Form::kIn : SupConOptions::Form::kOut,
                                .base_temperature = 0.07};
    const ContrastiveResult got = sup_con(features, labels, temperature, options);
    got.loss.backward();
    const at::Tensor d_features = features.grad();
    const at::Tensor d_temperature = temperature.grad();
    features.mutable_grad().reset();
    temperature.mutable_grad().reset();
    const at::Tensor wanted = dense_sup_con(features, labels, temperature, 0.07, inside);
    wanted.mean().backward();
    EXPECT_LE(max_error(got.rows, wanted), 1e-12);
    EXPECT_LE(max_error(d_features, features.grad()), 1e-12);
    EXPECT_LE(max_error(d_temperature, temperature.grad()), 1e-11);
  }
}

TEST(ClipLoss, EqualsTheTableOfLogitsOverSeveralTiles) {
  const at::Tensor images = unit_rows(600, 12, 1).requires_grad_();
  const at::Tensor texts = unit_rows(600, 12, 2).requires_grad_();
  const at::Tensor log_scale = number(2.0).requires_grad_();
  const ContrastiveResult got = clip_loss(images, texts, log_scale);
  got.loss.backward();
  const std::vector<at::Tensor> gradients{images.grad(), texts.grad(), log_scale.grad()};
  for (const at::Tensor& each : {images, texts, log_scale}) each.mutable_grad().reset();
  const at::Tensor wanted = dense_clip(images, texts, log_scale);
  wanted.mean().backward();
  EXPECT_LE(max_error(got.rows, wanted), 1e-12);
  EXPECT_LE(max_error(gradients[0], images.grad()), 1e-12);
  EXPECT_LE(max_error(gradients[1], texts.grad()), 1e-12);
  EXPECT_LE(max_error(gradients[2], log_scale.grad()), 1e-12);
}

TEST(ContrastiveGradients, EqualDifferencesOfTheLoss) {
  const at::Tensor view0 = random_rows(5, 3, 1, at::kDouble);
  const at::Tensor view1 = random_rows(5, 3, 2, at::kDouble);
  const at::Tensor temperature = number(0.7);
  using Inputs = std::vector<at::Tensor>;
  EXPECT_LE(
      gradient_error([](const Inputs& x) { return nt_xent(x[0], x[1], x[2]).loss * 3; }, {view0, view1, temperature}),
      1e-8);
  EXPECT_LE(gradient_error([](const Inputs& x) { return decoupled_contrastive(x[0], x[1], x[2]).loss; },
                           {view0, view1, temperature}),
            1e-8);
  EXPECT_LE(
      gradient_error([](const Inputs& x) { return clip_loss(x[0], x[1], x[2]).loss; }, {view0, view1, number(0.4)}),
      1e-8);
  const at::Tensor z1 = random_rows(5, 3, 3, at::kDouble);
  const at::Tensor z2 = random_rows(5, 3, 4, at::kDouble);
  EXPECT_LE(gradient_error([&](const Inputs& x) { return byol_loss(x[0], x[1], z1, z2); }, {view0, view1}), 1e-8);
  EXPECT_LE(gradient_error([&](const Inputs& x) { return simsiam_loss(x[0], x[1], z1, z2); }, {view0, view1}), 1e-8);
}

TEST(ContrastiveGradients, EqualDifferencesOfTheSupervisedLossInEveryVariant) {
  const at::Tensor labels = at::tensor({0, 1, 0, 2, 1}, at::kLong);
  for (const auto form : {SupConOptions::Form::kOut, SupConOptions::Form::kIn}) {
    for (const auto anchors : {SupConOptions::Anchors::kAllViews, SupConOptions::Anchors::kFirstView}) {
      for (const auto mean : {SupConOptions::Mean::kAllAnchors, SupConOptions::Mean::kAnchorsWithPositives}) {
        for (const std::int64_t views : {1, 2}) {
          const auto loss = [&](const std::vector<at::Tensor>& x) {
            return sup_con(x[0], labels, x[1],
                           {.form = form, .anchors = anchors, .mean = mean, .base_temperature = 0.3})
                .loss;
          };
          const at::Tensor features = random_rows(5 * views, 3, 1, at::kDouble).view({5, views, 3});
          EXPECT_LE(gradient_error(loss, {features, number(0.6)}), 1e-8);
        }
      }
    }
  }
}

/// All losses within a batch, as functions of two views.
std::vector<std::pair<std::string, std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>>> all_losses(
    double temperature) {
  return {
      {"nt_xent", [=](const at::Tensor& a, const at::Tensor& b) { return nt_xent(a, b, temperature).loss; }},
      {"decoupled_contrastive",
       [=](const at::Tensor& a, const at::Tensor& b) { return decoupled_contrastive(a, b, temperature).loss; }},
      {"sup_con",
       [=](const at::Tensor& a, const at::Tensor& b) {
         return sup_con(at::stack({a, b}, 1), at::arange(a.size(0)).remainder(3), temperature).loss;
       }},
      {"clip_loss",
       [=](const at::Tensor& a, const at::Tensor& b) {
         return clip_loss(a, b, at::full({}, -std::log(temperature), at::kFloat)).loss;
       }},
      {"negative_cosine", [](const at::Tensor& a, const at::Tensor& b) { return negative_cosine(a, b).mean(); }},
  };
}

TEST(ContrastiveLosses, ComputeInFloatForHalfInputsAndReturnTheirDtype) {
  for (const auto& [name, loss] : all_losses(0.1)) {
    for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
      SCOPED_TRACE(name);
      const at::Tensor half = unit_rows(20, 16, 1, dtype).requires_grad_();
      const at::Tensor wide = half.detach().to(at::kFloat).requires_grad_();
      const at::Tensor other = unit_rows(20, 16, 2, dtype);
      const at::Tensor of_half = loss(half, other);
      const at::Tensor of_wide = loss(wide, other.to(at::kFloat));
      EXPECT_EQ(of_half.scalar_type(), at::kFloat);
      EXPECT_TRUE(of_half.equal(of_wide));
      of_half.backward();
      of_wide.backward();
      EXPECT_EQ(half.grad().scalar_type(), dtype);
      EXPECT_TRUE(half.grad().equal(wide.grad().to(dtype)));
    }
  }
}

// Rows 21 and 27 of the list of others' bugs: infinite or NaN at low temperature.
TEST(ContrastiveLosses, AreFiniteAndRightAtLowTemperatureInHalf) {
  for (const auto& [name, loss] : all_losses(0.01)) {
    SCOPED_TRACE(name);
    const at::Tensor half = unit_rows(20, 16, 1, at::kHalf).requires_grad_();
    const at::Tensor exact = half.detach().to(at::kDouble).requires_grad_();
    const at::Tensor other = unit_rows(20, 16, 2, at::kHalf);
    const at::Tensor of_half = loss(half, other);
    const at::Tensor wanted = loss(exact, other.to(at::kDouble));
    of_half.backward();
    wanted.backward();
    EXPECT_NEAR(of_half.item<double>(), wanted.item<double>(), 1e-4);
    EXPECT_LE(relative_error(half.grad(), exact.grad()), 1e-3);
  }
}

TEST(ContrastiveLosses, GiveTheSameBitsUnderAutocast) {
  for (const auto& [name, loss] : all_losses(0.1)) {
    SCOPED_TRACE(name);
    const at::Tensor a = unit_rows(20, 16, 1, at::kFloat).requires_grad_();
    const at::Tensor b = unit_rows(20, 16, 2, at::kFloat);
    const at::Tensor wanted = loss(a, b);
    wanted.backward();
    const at::Tensor wanted_gradient = a.grad();
    a.mutable_grad().reset();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const at::Tensor got = loss(a, b);
    got.backward();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    EXPECT_TRUE(got.equal(wanted));
    EXPECT_TRUE(a.grad().equal(wanted_gradient));
  }
}

TEST(ContrastiveLosses, RunBackwardAgainWhereTheGraphIsRetained) {
  for (const auto& [name, loss] : all_losses(0.1)) {
    SCOPED_TRACE(name);
    const at::Tensor a = unit_rows(20, 16, 1).requires_grad_();
    const at::Tensor got = loss(a, unit_rows(20, 16, 2));
    got.backward({}, /*retain_graph=*/true);
    const at::Tensor once = a.grad().clone();
    got.backward();
    EXPECT_TRUE(a.grad().equal(once * 2));
    EXPECT_THROW(got.backward(), c10::Error);  // What was saved is freed.
  }
}

TEST(ContrastiveLosses, AreZeroWithZeroGradientForABatchWithoutRows) {
  for (const auto& [name, loss] : all_losses(0.1)) {
    SCOPED_TRACE(name);
    const at::Tensor a = at::zeros({0, 16}).requires_grad_();
    const at::Tensor got = loss(a, at::zeros({0, 16}));
    EXPECT_TRUE(name == "negative_cosine" || got.item<double>() == 0.0);
    got.backward();
    EXPECT_EQ(a.grad().sizes(), a.sizes());
  }
  EXPECT_EQ(byol_loss(at::zeros({0, 4}), at::zeros({0, 4}), at::zeros({0, 4}), at::zeros({0, 4})).item<double>(), 0.0);
}

TEST(ContrastiveLosses, RefuseToBeDifferentiatedTwice) {
  for (const auto& [name, loss] : all_losses(0.1)) {
    SCOPED_TRACE(name);
    const at::Tensor a = unit_rows(6, 4, 1).requires_grad_();
    const auto first =
        torch::autograd::grad({loss(a, unit_rows(6, 4, 2))}, {a}, {}, std::nullopt, /*create_graph=*/true);
    EXPECT_THAT([&] { first.at(0).pow(2).sum().backward(); },
                ThrowsMessage<c10::Error>(HasSubstr(name + " has no second derivative")));
  }
}

TEST(ContrastiveLosses, NoticeInputsThatWereChangedBeforeBackward) {
  const at::Tensor images = unit_rows(6, 4, 1).requires_grad_();
  const at::Tensor texts = unit_rows(6, 4, 2);
  const ContrastiveResult got = clip_loss(images, texts, number(1.0));
  texts.add_(1);
  EXPECT_THAT([&] { got.loss.backward(); }, ThrowsMessage<c10::Error>(HasSubstr("modified by an inplace operation")));
}

TEST(ContrastiveLosses, RunWithoutAGradient) {
  for (const auto& [name, loss] : all_losses(0.1)) {
    SCOPED_TRACE(name);
    const at::Tensor a = unit_rows(6, 4, 1).requires_grad_();
    const at::Tensor wanted = loss(a, unit_rows(6, 4, 2));
    const at::NoGradGuard no_grad;
    const at::Tensor got = loss(a, unit_rows(6, 4, 2));
    EXPECT_TRUE(got.equal(wanted));
    EXPECT_FALSE(got.requires_grad());
  }
}

TEST(NtXent, KeepsTheGradientOfRowsThatAreAlmostSolved) {
  // 1 - p(positive) vanishes in float32 beside p(positive): a gradient made as their difference would be noise.
  const at::Tensor rows = at::eye(8, at::kDouble).mul(2);
  const at::Tensor exact = rows.clone().requires_grad_();
  nt_xent(exact, rows, 0.15).loss.backward();
  const at::Tensor in_float = rows.to(at::kFloat).requires_grad_();
  const ContrastiveResult got = nt_xent(in_float, rows.to(at::kFloat), 0.15);
  got.loss.backward();
  EXPECT_LT(got.rows.max().item<double>(), 1e-9);
  EXPECT_GT(got.rows.min().item<double>(), 0.0);
  EXPECT_LE(relative_error(in_float.grad(), exact.grad()), 1e-4);
}

TEST(DecoupledContrastive, CanBeNegativeAndIsZeroWithoutNegatives) {
  const at::Tensor rows = at::eye(4, at::kDouble);
  EXPECT_LT(decoupled_contrastive(rows, rows, 0.1).loss.item<double>(), 0.0);
  const at::Tensor one = unit_rows(1, 4, 1).requires_grad_();
  const ContrastiveResult got = decoupled_contrastive(one, unit_rows(1, 4, 2), 0.1);
  got.loss.backward();
  EXPECT_EQ(got.loss.item<double>(), 0.0);
  EXPECT_EQ(one.grad().abs().max().item<double>(), 0.0);
}

// Row 27: the scale of CLIP grows until exp overflows.
TEST(ClipLoss, BoundsItsScaleAndLetsItComeBack) {
  const at::Tensor images = unit_rows(8, 16, 1);
  const at::Tensor texts = unit_rows(8, 16, 2);
  const ClipOptions bounded{.scale_max = 100.0};
  const at::Tensor at_bound = number(std::log(100.0)).requires_grad_();
  const at::Tensor beyond = number(1000.0).requires_grad_();
  const at::Tensor wanted = clip_loss(images, texts, at_bound).loss;
  const at::Tensor got = clip_loss(images, texts, beyond, bounded).loss;
  EXPECT_LE(max_error(got, wanted), 1e-12);
  wanted.backward();
  got.backward();
  ASSERT_GT(at_bound.grad().item<double>(), 0.0);  // Random pairs: a smaller scale is better.
  EXPECT_LE(max_error(beyond.grad(), at_bound.grad()), 1e-12);

  // Matching pairs want a larger scale than the bound, and get no further.
  const at::Tensor solved = number(std::log(100.0) + 1e-9).requires_grad_();
  clip_loss(images, images, solved, {.scale_max = 100.0}).loss.backward();
  EXPECT_EQ(solved.grad().item<double>(), 0.0);
  const at::Tensor free = number(std::log(100.0)).requires_grad_();
  clip_loss(images, images, free, {.scale_max = 200.0}).loss.backward();
  EXPECT_LT(free.grad().item<double>(), 0.0);
  EXPECT_THAT([&] { (void)clip_loss(images, texts, beyond); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("log_scale is 1000"), HasSubstr("scale_max bounds it"))));
}

TEST(NegativeCosine, IsRightForTinyAndHugeRows) {
  const at::Tensor unit = unit_rows(1, 8, 1, at::kFloat);
  const at::Tensor z = unit_rows(1, 8, 2, at::kFloat);
  const double wanted = negative_cosine(unit, z).item<double>();
  for (const double length : {1e-11, 1e-8, 1e15, 1e30}) {
    SCOPED_TRACE(length);
    const at::Tensor p = unit.mul(length).requires_grad_();
    const at::Tensor rows = negative_cosine(p, z);
    EXPECT_NEAR(rows.item<double>(), wanted, 1e-6);
    rows.sum().backward();
    const at::Tensor of_unit = unit.clone().requires_grad_();
    negative_cosine(of_unit, z).sum().backward();
    EXPECT_LE(relative_error(p.grad().to(at::kDouble) * length, of_unit.grad()), 1e-5);
  }
}

TEST(ContrastiveLosses, RefuseInputsThatDoNotFit) {
  const at::Tensor good = unit_rows(4, 8, 1);
  const auto refused = [](const std::function<void()>& call, const char* loss, const char* text) {
    EXPECT_THAT(call, ThrowsMessage<ConfigError>(AllOf(HasSubstr(loss), HasSubstr(text))));
  };
  refused([&] { (void)nt_xent(good, unit_rows(5, 8, 2), 0.1); }, "nt_xent",
          "view1 is [5, 8] double on cpu, wanted [4, 8]");
  refused([&] { (void)nt_xent(good[0], good, 0.1); }, "nt_xent",
          "view0 is [8] double on cpu, wanted [rows, dimension]");
  refused([&] { (void)nt_xent(good, at::Tensor(), 0.1); }, "nt_xent", "view1 is undefined");
  refused([&] { (void)nt_xent(good.to(at::kLong), good, 0.1); }, "nt_xent", "long");
  refused([&] { (void)nt_xent(good.to(at::kMeta), good, 0.1); }, "nt_xent", "on meta");
  refused([&] { (void)nt_xent(good, good, 0.0); }, "nt_xent", "temperature is 0, wanted a finite value above 0");
  refused([&] { (void)decoupled_contrastive(good, good, number(-1.0)); }, "decoupled_contrastive", "temperature is -1");
  const at::Tensor features = good.view({4, 1, 8});
  const at::Tensor labels = at::zeros({4}, at::kLong);
  refused([&] { (void)sup_con(good, labels, 0.1); }, "sup_con", "features is [4, 8]");
  refused([&] { (void)sup_con(features, labels.narrow(0, 0, 3), 0.1); }, "sup_con",
          "labels is [3] long int on cpu, wanted [4] int64");
  refused([&] { (void)sup_con(features, labels.to(at::kFloat), 0.1); }, "sup_con", "labels is [4] float");
  refused([&] { (void)sup_con(features, labels, 0.1, {.base_temperature = 0.0}); }, "sup_con", "base_temperature is 0");
  refused([&] { (void)sup_con(features, labels, kInfinity); }, "sup_con", "temperature is inf");
  refused([&] { (void)clip_loss(good, good, at::zeros({2})); }, "clip_loss",
          "log_scale is [2] float on cpu, wanted one");
  refused([&] { (void)clip_loss(good, good, number(1.0), {.scale_max = 0.0}); }, "clip_loss", "scale_max is 0");
  refused([&] { (void)clip_loss(good, good, number(std::nan(""))); }, "clip_loss", "log_scale is nan");
  refused([&] { (void)negative_cosine(good, unit_rows(4, 7, 1)); }, "negative_cosine",
          "z is [4, 7] double on cpu, wanted [4, 8]");
}

}  // namespace
}  // namespace spillway::queue::contrastive_loss_test

#include <spillway/optimizer/lars.hpp>

#include <cmath>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/serialize/archive.h>

#include <spillway/offload/error.hpp>

#include "optimizer/sharded_fixture.hpp"
#include "optimizer/training.hpp"

namespace spillway::test::lars_test {
namespace {

using ::testing::HasSubstr;

/// The update as its authors write it, element by element in float64, of one parameter.
struct ByDefinition {
  std::vector<double> w;
  std::vector<double> v;

  explicit ByDefinition(const at::Tensor& start) : v(static_cast<std::size_t>(start.numel()), 0.0) {
    for (std::int64_t i = 0; i < start.numel(); ++i) w.push_back(start.detach().flatten()[i].item<double>());
  }

  static double length(const std::vector<double>& of) {
    double squares = 0.0;
    for (const double value : of) squares += value * value;
    return std::sqrt(squares);
  }

  void step(const LarsOptions& options, std::vector<double> g, bool adapted) {
    for (std::size_t i = 0; adapted && i < g.size(); ++i) g[i] += options.weight_decay * w[i];
    double rate = options.lr;
    if (adapted && length(w) > 0.0 && length(g) > 0.0) rate *= options.trust_coefficient * length(w) / length(g);
    for (std::size_t i = 0; i < g.size(); ++i) {
      v[i] = options.momentum * v[i] + rate * g[i];
      w[i] -= options.nesterov ? options.momentum * v[i] + rate * g[i] : v[i];
    }
  }
};

/// @param shape  Of one parameter, which starts at `start`.
void expect_the_formula(const LarsOptions& options, const at::Tensor& start, bool adapted, double tolerance) {
  const at::Tensor parameter = start.clone().requires_grad_();
  ByDefinition wanted(start);
  Lars lars({parameter}, options);
  for (int step = 0; step < 5; ++step) {
    std::vector<double> gradient;
    for (std::int64_t i = 0; i < start.numel(); ++i) gradient.push_back(std::sin(1.0 + static_cast<double>(i) + step));
    parameter.mutable_grad() = at::zeros_like(parameter);
    for (std::int64_t i = 0; i < start.numel(); ++i) {
      parameter.mutable_grad().view({-1})[i].fill_(gradient[static_cast<std::size_t>(i)]);
    }
    lars.step();
    wanted.step(options, gradient, adapted);
    for (std::int64_t i = 0; i < start.numel(); ++i) {
      EXPECT_NEAR(parameter.detach().flatten()[i].item<double>(), wanted.w[static_cast<std::size_t>(i)], tolerance)
          << "step " << step << ", element " << i;
    }
  }
}

LarsOptions options_of(double momentum, double weight_decay, bool nesterov) {
  LarsOptions options(20.0);
  options.momentum = momentum;
  options.weight_decay = weight_decay;
  options.nesterov = nesterov;
  return options;
}

TEST(Lars, FollowsTheFormula) {
  const at::Tensor start = at::linspace(-1.0, 1.5, 24, at::kDouble).view({4, 6});
  for (const LarsOptions& options : {options_of(0.0, 0.0, false), options_of(0.9, 0.0, false),
                                     options_of(0.9, 0.1, false), options_of(0.9, 0.1, true)}) {
    expect_the_formula(options, start, /*adapted=*/true, 1e-12);
    expect_the_formula(options, start.to(at::kFloat), /*adapted=*/true, 1e-5);
  }
}

TEST(Lars, NeitherAdaptsNorDecaysWhatHasOneDimension) {
  LarsOptions options = options_of(0.9, 0.1, false);
  options.lr = 0.01;
  expect_the_formula(options, at::linspace(-1.0, 1.5, 24, at::kDouble), /*adapted=*/false, 1e-12);
}

TEST(Lars, TakesTheRateAsItIsWhereThereIsNoLength) {
  LarsOptions options = options_of(0.9, 0.1, false);
  options.lr = 0.01;
  const at::Tensor parameter = at::zeros({2, 3}).requires_grad_();
  Lars lars({parameter}, options);
  parameter.mutable_grad() = at::ones({2, 3});
  lars.step();
  EXPECT_TRUE(parameter.detach().allclose(at::full({2, 3}, -0.01F)));

  const at::Tensor other = at::ones({2, 3}).requires_grad_();
  options.weight_decay = 0.0;
  Lars still({other}, options);
  other.mutable_grad() = at::zeros({2, 3});
  still.step();
  EXPECT_TRUE(other.detach().equal(at::ones({2, 3})));
}

TEST(Lars, SavesAndLoadsOptionsAndState) {
  const auto make = [](const TensorGroups& weights) { return lars().make(weights); };
  TensorGroups weights = odd_parameters();
  const Gradients gradients(512);
  const auto first = make(weights);
  const auto advance = [&](torch::optim::Optimizer& optimizer, const TensorGroups& of, int begin, int end) {
    for (int step = begin; step < end; ++step) {
      gradients.give(of, step);
      optimizer.step();
    }
  };
  advance(*first, weights, 0, 5);
  std::ostringstream out;
  torch::serialize::OutputArchive saved;
  first->save(saved);
  saved.save_to(out);

  const TensorGroups loaded = clone(weights);
  Lars second({torch::optim::OptimizerParamGroup(loaded[0]), torch::optim::OptimizerParamGroup(loaded[1])});
  std::istringstream in(std::move(out).str());
  torch::serialize::InputArchive archive;
  archive.load_from(in);
  second.load(archive);
  advance(*first, weights, 5, 9);
  advance(second, loaded, 5, 9);
  EXPECT_EQ(differences(loaded, weights), "");
}

TEST(Lars, IsTheSameWhereRanksOwnWholeParameters) {
  with_ranks(2, [](const Rank& rank) {
    TensorGroups plain_weights{{at::linspace(-1.0, 2.0, 20'000).view({200, 100}).requires_grad_(),
                                at::linspace(1.0, 3.0, 300).view({3, 100}).requires_grad_(),
                                at::linspace(0.0, 1.0, 7).requires_grad_()}};
    TensorGroups weights = clone(plain_weights);
    const LarsOptions options = options_of(0.9, 0.1, false);
    Lars plain(plain_weights[0], options);
    const auto optimizer = wrap(std::make_unique<Lars>(weights[0], options), rank.config());
    const auto factor = [](const at::Tensor& of, int step, int number) {
      return at::linspace(-1.0 - number, 1.0 + step, of.numel()).view(of.sizes());
    };
    for (int step = 0; step < 3; ++step) {
      for (const at::Tensor& weight : weights[0]) weight.mul(factor(weight, step, rank.number)).sum().backward();
      for (const at::Tensor& weight : plain_weights[0]) {
        weight.mutable_grad() = factor(weight, step, 0).add(factor(weight, step, 1)).div(2.0);
      }
      plain.step();
      optimizer->step();
    }
    EXPECT_EQ(differences(weights, plain_weights), "") << "rank " << rank.number;
  });
}

TEST(Lars, RefusesWhatCanNotBeRight) {
  const std::vector<at::Tensor> weights{at::zeros({2, 2}).requires_grad_()};
  LarsOptions options(-1.0);
  EXPECT_THAT(message_of<ConfigError>([&] { Lars(weights, options); }), HasSubstr("lr"));
  options = options_of(0.0, 0.0, true);
  EXPECT_THAT(message_of<ConfigError>([&] { Lars(weights, options); }), HasSubstr("nesterov"));
}

}  // namespace
}  // namespace spillway::test::lars_test

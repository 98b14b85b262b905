#include <spillway/app/evaluation/few_label.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cholesky_solve.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_cholesky.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <spillway/app/data/counter_rng.hpp>

namespace spillway::app {
namespace {

constexpr std::uint32_t kDrawPurpose = 0x45000000U;
constexpr std::int64_t kMaxIterations = 5000;
constexpr double kGradientTolerance = 1e-6;  // Per row: far below what changes a prediction.

at::Tensor with_bias_column(const at::Tensor& features) {
  return at::cat({features, at::ones({features.size(0), 1}, features.options())}, 1);
}

/// Rows of the labelled sample: `per_class` of each class, in class order, chosen by a partial shuffle.
at::Tensor draw_rows(const at::Tensor& labels, std::int64_t classes, std::uint64_t per_class, std::uint64_t seed,
                     std::uint32_t draw) {
  std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(classes));
  const std::int64_t* label = labels.const_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < labels.size(0); ++row) {
    rows[static_cast<std::size_t>(label[row])].push_back(row);
  }
  std::vector<std::int64_t> chosen;
  for (std::uint32_t index = 0; index < rows.size(); ++index) {
    std::vector<std::int64_t>& pool = rows[index];
    CounterRng rng({seed, kDrawPurpose, draw, index});
    const std::size_t take = std::min<std::size_t>(per_class, pool.size());
    for (std::size_t place = 0; place < take; ++place) {
      const auto left = static_cast<std::uint32_t>(pool.size() - place);
      std::swap(pool[place], pool[place + rng.below(left)]);
      chosen.push_back(pool[place]);
    }
  }
  return at::tensor(chosen, labels.options());
}

/// Both sets with the mean and deviation of the columns of `train` taken out, in float64.
struct Standardised {
  Standardised(const LabelledFeatures& train_set, const LabelledFeatures& test_set) {
    const at::Tensor pool = train_set.features.to(at::kDouble);
    const at::Tensor mean = pool.mean(0, true);
    // Columns that never change say nothing; the floor keeps them finite.
    const at::Tensor deviation = pool.std(0, false, true).clamp_min(1e-6);
    train = (pool - mean) / deviation;
    test = (test_set.features.to(at::kDouble) - mean) / deviation;
  }

  at::Tensor train;
  at::Tensor test;
};

std::int64_t count_classes(const at::Tensor& labels) { return 1 + labels.max().item<std::int64_t>(); }

double share_right(const LogisticRegression& model, const at::Tensor& features, const at::Tensor& labels) {
  return model.predict(features).eq(labels).to(at::kDouble).mean().item<double>();
}

}  // namespace

LogisticRegression LogisticRegression::fit(const at::Tensor& features, const at::Tensor& labels, std::int64_t classes,
                                           double l2) {
  const at::NoGradGuard no_grad;
  // The optimum lies in the span of the rows, so that wide features are solved in at most N dimensions.
  at::Tensor basis;
  at::Tensor rows = features;
  if (features.size(1) > features.size(0)) {
    basis = std::get<0>(at::linalg_qr(features.t()));
    rows = features.mm(basis);
  }
  const at::Tensor x = with_bias_column(rows);
  const at::Tensor target = at::one_hot(labels, classes).to(at::kDouble);
  at::Tensor penalty = at::ones({x.size(1), 1}, x.options()) * l2;
  penalty[-1] = 0.0;
  // ½·(I - 11ᵀ/classes) ⊗ XᵀX bounds the Hessian; ½·I in place of the bracket bounds it too and splits by class.
  at::Tensor bound = x.t().mm(x) * 0.5;
  bound.diagonal().add_(penalty.squeeze(1));
  const at::Tensor factor = at::linalg_cholesky(bound);

  LogisticRegression model;
  at::Tensor weight = at::zeros({x.size(1), classes}, x.options());
  at::Tensor ahead = weight;
  double pace = 1.0;
  const double enough = kGradientTolerance * static_cast<double>(x.size(0));
  model.gradient_norm = std::numeric_limits<double>::infinity();
  while (model.gradient_norm > enough && model.iterations < kMaxIterations) {
    const at::Tensor gradient = x.t().mm(at::softmax(x.mm(ahead), 1) - target) + penalty * ahead;
    const at::Tensor next = ahead - at::cholesky_solve(gradient, factor);
    const at::Tensor moved = next - weight;
    // Momentum that has come to point uphill starts anew.
    pace = (gradient * moved).sum().item<double>() > 0.0 ? 1.0 : pace;
    const double next_pace = (1.0 + std::sqrt(1.0 + 4.0 * pace * pace)) / 2.0;
    ahead = next + moved * ((pace - 1.0) / next_pace);
    weight = next;
    pace = next_pace;
    model.gradient_norm = gradient.norm().item<double>();
    ++model.iterations;
  }
  model.weight =
      basis.defined() ? at::cat({basis.mm(weight.narrow(0, 0, rows.size(1))), weight.narrow(0, -1, 1)}) : weight;
  return model;
}

at::Tensor LogisticRegression::predict(const at::Tensor& features) const {
  return at::argmax(with_bias_column(features).mm(weight), 1);
}

double few_label_accuracy(const LabelledFeatures& train, const LabelledFeatures& test, const EvaluationConfig& config,
                          std::uint64_t seed) {
  check_sets(train, test, "few-label accuracy");
  const at::NoGradGuard no_grad;
  const Standardised features(train, test);
  const std::int64_t classes = count_classes(train.labels);
  double sum = 0.0;
  for (std::uint32_t draw = 0; draw < config.draws; ++draw) {
    const at::Tensor rows = draw_rows(train.labels, classes, config.labels_per_class, seed, draw);
    const auto model = LogisticRegression::fit(features.train.index_select(0, rows), train.labels.index_select(0, rows),
                                               classes, config.l2);
    sum += share_right(model, features.test, test.labels);
  }
  return 100.0 * sum / static_cast<double>(config.draws);
}

double linear_probe_accuracy(const LabelledFeatures& train, const LabelledFeatures& test,
                             const EvaluationConfig& config) {
  check_sets(train, test, "linear probe");
  const at::NoGradGuard no_grad;
  const Standardised features(train, test);
  const auto model = LogisticRegression::fit(features.train, train.labels, count_classes(train.labels), config.l2);
  return 100.0 * share_right(model, features.test, test.labels);
}

}  // namespace spillway::app

#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/app/evaluation/labelled_features.hpp>

namespace spillway::app {

/// Multinomial logistic regression with L2 on the weights (not on the bias), solved to convergence in float64.
struct LogisticRegression {
  at::Tensor weight;  ///< [D + 1, classes] float64; the last row is the bias.
  std::int64_t iterations = 0;
  double gradient_norm = 0.0;

  /// Minimises the sum of cross-entropies + l2/2 * |weight without bias|². l2 is above 0.
  /// @param features [N, D] float64.  @param labels [N] int64 in 0 … classes - 1.
  /// Sources: Böhning 1992, "Multinomial logistic regression algorithm": a fixed bound of the Hessian, factored once,
  /// in place of a step size; Nesterov's momentum on top of it, restarted as in O'Donoghue and Candès 2015.
  [[nodiscard]] static LogisticRegression fit(const at::Tensor& features, const at::Tensor& labels,
                                              std::int64_t classes, double l2);

  /// [N] int64: the likeliest class of each row of `features`, [N, D] float64.
  [[nodiscard]] at::Tensor predict(const at::Tensor& features) const;
};

/// Accuracy on `test`, in percent, of a logistic regression on `labels_per_class` rows of each class of `train` (all
/// of a class that has fewer): the mean over `draws` choices of those rows. Features are standardised with mean and
/// deviation of all of `train`, whose labels are not needed for that. A pure function of its arguments; one thread,
/// a second or so.
/// @throws Error if the two sets have different widths, or a set is empty.
[[nodiscard]] double few_label_accuracy(const LabelledFeatures& train, const LabelledFeatures& test,
                                        const EvaluationConfig& config, std::uint64_t seed);

/// The linear probe: accuracy on `test`, in percent, of a logistic regression on all of `train`, whose features are
/// standardised as above. Nothing is drawn.
/// @throws Error if the two sets have different widths, or a set is empty.
[[nodiscard]] double linear_probe_accuracy(const LabelledFeatures& train, const LabelledFeatures& test,
                                           const EvaluationConfig& config);

}  // namespace spillway::app

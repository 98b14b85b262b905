#pragma once

#include <spillway/app/config/config.hpp>
#include <spillway/app/evaluation/labelled_features.hpp>

namespace spillway::app {

/// Accuracy on `test`, in percent, of a vote of the rows of `train` that are most like a row by the cosine:
/// `knn_neighbours` of them, or all where there are fewer, each with the weight exp(cosine / knn_temperature). Nothing
/// is trained. Features are compared in float32; a row of zeros is like no other. A pure function of its arguments
/// that needs memory for 256 × (rows of train) similarities at a time.
/// Source: Wu et al. 2018, "Unsupervised feature learning via non-parametric instance discrimination", sec. 3.4.
/// @throws Error if the two sets have different widths, or a set is empty.
[[nodiscard]] double nearest_neighbour_accuracy(const LabelledFeatures& train, const LabelledFeatures& test,
                                                const EvaluationConfig& config);

}  // namespace spillway::app

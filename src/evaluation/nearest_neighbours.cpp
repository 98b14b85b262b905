#include <spillway/app/evaluation/nearest_neighbours.hpp>

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

namespace spillway::app {
namespace {

constexpr std::int64_t kRowsAtOnce = 256;

at::Tensor directions(const at::Tensor& features) {
  const at::Tensor rows = features.to(at::kFloat);
  return rows / rows.norm(2, 1, true).clamp_min(1e-12);
}

}  // namespace

double nearest_neighbour_accuracy(const LabelledFeatures& train, const LabelledFeatures& test,
                                  const EvaluationConfig& config) {
  check_sets(train, test, "kNN accuracy");
  const at::NoGradGuard no_grad;
  const at::Tensor pool = directions(train.features).t();
  const at::Tensor queries = directions(test.features);
  const std::int64_t classes = 1 + train.labels.max().item<std::int64_t>();
  const std::int64_t neighbours = std::min(static_cast<std::int64_t>(config.knn_neighbours), pool.size(1));
  std::int64_t right = 0;
  for (std::int64_t first = 0; first < queries.size(0); first += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, queries.size(0) - first);
    const auto [cosines, nearest] = queries.narrow(0, first, rows).mm(pool).topk(neighbours, 1);
    // Less the largest, which changes no vote, so that a low temperature does not overflow.
    const at::Tensor weights = ((cosines - cosines.narrow(1, 0, 1)) / config.knn_temperature).exp();
    const at::Tensor classes_near = train.labels.index_select(0, nearest.flatten()).view_as(nearest);
    const at::Tensor votes = at::zeros({rows, classes}).scatter_add_(1, classes_near, weights);
    right += votes.argmax(1).eq(test.labels.narrow(0, first, rows)).sum().item<std::int64_t>();
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(queries.size(0));
}

}  // namespace spillway::app

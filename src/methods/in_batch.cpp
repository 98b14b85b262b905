#include <spillway/app/methods/in_batch.hpp>

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <spillway/app/methods/parameter_precision.hpp>
#include <spillway/queue/contrastive_loss.hpp>

namespace spillway::app {

InBatch::InBatch(const Config& config, ImageGeometry geometry, distributed::Collective* ranks)
    : TrainingMethod(make_network(config, geometry)),
      by_label_(config.method == Method::kSupCon),
      cached_(config.contrastive.accumulation == Accumulation::kCached),
      dim_(static_cast<std::int64_t>(config.contrastive.projection_dim)),
      ranks_(ranks),
      temperature_(config.contrastive) {}

std::vector<NamedTensor> InBatch::parameters() const {
  std::vector<NamedTensor> all = TrainingMethod::parameters();
  for (NamedTensor& parameter : temperature_.parameters()) all.push_back(std::move(parameter));
  return all;
}

std::vector<at::Tensor> InBatch::embed(const ViewPair& batch) {
  const std::int64_t rows = batch.view0.size(0);
  // A rank without rows takes part in the comparison, and batch-norms in nothing.
  const at::Tensor projected =
      rows == 0 ? at::empty({0, dim_}, batch.view0.options()).requires_grad_(at::GradMode::is_enabled())
                : network().project(at::cat({batch.view0, batch.view1}));
  std::vector<at::Tensor> views = {projected.narrow(0, 0, rows), projected.narrow(0, rows, rows)};
  // The temperature goes with them, so that its gradient comes with a micro-batch's, in no backward of its own.
  if (temperature_.log_scale().defined()) views.push_back(temperature_.log_scale().clone());
  return views;
}

at::Tensor InBatch::compare(const std::vector<at::Tensor>& views, const at::Tensor& labels) {
  const queue::Temperature temperature = temperature_.at(views.size() > 2 ? views[2].narrow(0, 0, 1) : at::Tensor());
  queue::SupConOptions options;
  options.ranks = ranks_;
  return by_label_ ? queue::sup_con(at::stack({views[0], views[1]}, 1), labels, temperature, options).loss
                   : queue::nt_xent(views[0], views[1], temperature, ranks_).loss;
}

at::Tensor InBatch::loss(const ViewPair& batch) { return compare(embed(batch), batch.labels); }

void InBatch::finish_window(bool stepped) {
  if (stepped) temperature_.bound();
}

}  // namespace spillway::app

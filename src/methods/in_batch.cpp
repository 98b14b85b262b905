#include <spillway/app/methods/in_batch.hpp>

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <spillway/queue/contrastive_loss.hpp>

namespace spillway::app {

InBatch::InBatch(const Config& config, ImageGeometry geometry)
    : TrainingMethod({config.encoder, config.contrastive, geometry}),
      by_label_(config.method == Method::kSupCon),
      temperature_(config.contrastive.temperature) {}

at::Tensor InBatch::loss(const ViewPair& batch) {
  const std::int64_t rows = batch.view0.size(0);
  const at::Tensor projected = network().project(at::cat({batch.view0, batch.view1}));
  const at::Tensor first = projected.narrow(0, 0, rows);
  const at::Tensor second = projected.narrow(0, rows, rows);
  return by_label_ ? queue::sup_con(at::stack({first, second}, 1), batch.labels, temperature_).loss
                   : queue::nt_xent(first, second, temperature_).loss;
}

}  // namespace spillway::app

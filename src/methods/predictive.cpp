#include <spillway/app/methods/predictive.hpp>

#include <utility>

#include <ATen/ops/zeros.h>

#include <spillway/app/methods/parameter_precision.hpp>
#include <spillway/queue/cosine_loss.hpp>

namespace spillway::app {

Predictive::Predictive(const Config& config, ImageGeometry geometry)
    : TrainingMethod(make_network(config, geometry)), predictor_(config.contrastive), momentum_(config.contrastive) {
  set_precision(predictor_.parameters(), config);
  if (config.method == Method::kByol) {
    target_.emplace(make_network(config, geometry), network(), config.contrastive.momentum);
  }
}

std::vector<NamedTensor> Predictive::parameters() const {
  std::vector<NamedTensor> parameters = TrainingMethod::parameters();
  for (NamedTensor& parameter : predictor_.parameters()) parameters.push_back(std::move(parameter));
  return parameters;
}

std::vector<NamedTensor> Predictive::buffers() const {
  std::vector<NamedTensor> buffers = TrainingMethod::buffers();
  if (target_) {
    for (NamedTensor& buffer : target_->network().buffers()) buffers.push_back(std::move(buffer));
  }
  return buffers;
}

void Predictive::master_changed(const at::Tensor& parameter, const at::Tensor& master) {
  if (target_) target_->follow(parameter, master);
}

std::vector<NamedTensor> Predictive::state() const {
  std::vector<NamedTensor> state = TrainingMethod::state();
  if (target_) {
    for (NamedTensor& tensor : target_->state()) state.push_back(std::move(tensor));
  }
  return state;
}

void Predictive::state_restored() {
  if (target_) target_->state_restored();
}

at::Tensor Predictive::loss(const ViewPair& batch) {
  if (batch.view0.size(0) == 0) return at::zeros({}, batch.view0.options()).requires_grad_();
  const at::Tensor z0 = network().projection(batch.view0);
  const at::Tensor z1 = network().projection(batch.view1);
  const at::Tensor p0 = predictor_.predict(z0);
  const at::Tensor p1 = predictor_.predict(z1);
  if (!target_) return queue::simsiam_loss(p0, p1, z0, z1);
  return queue::byol_loss(p0, p1, target_->encode(batch.view0), target_->encode(batch.view1));
}

void Predictive::begin_step(std::uint64_t step, std::uint64_t steps) {
  if (target_) target_->set_momentum(momentum_.at(step, steps));
}

void Predictive::finish_window(bool stepped) {
  if (stepped && target_) target_->follow();
}

}  // namespace spillway::app

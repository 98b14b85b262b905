#include <spillway/optimizer/grad_scaler.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/optimizer/grad_clip.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>

namespace spillway::optimizer {
namespace {

// The gradients by device and dtype, those of tied parameters once.
std::vector<std::vector<at::Tensor>> gradients_of(torch::optim::Optimizer& optimizer) {
  std::map<std::pair<std::string, at::ScalarType>, std::vector<at::Tensor>> lists;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined() || !seen.insert(gradient.unsafeGetTensorImpl()).second) {
        continue;
      }
      if (gradient.layout() != at::kStrided) {
        throw Error("a gradient to be unscaled is sparse; take to_dense() of it, or make the layer's gradient dense");
      }
      lists[{gradient.device().str(), gradient.scalar_type()}].push_back(gradient);
    }
  }
  std::vector<std::vector<at::Tensor>> result;
  for (auto& [place, gradients] : lists) {
    result.push_back(std::move(gradients));
  }
  return result;
}

}  // namespace

GradScaler::GradScaler(const LossScaleOptions& options, distributed::Collective* ranks)
    : scale_(options), ranks_(ranks) {}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  const bool narrow = loss.scalar_type() == at::kHalf || loss.scalar_type() == at::kBFloat16;
  return (narrow ? loss.to(at::kFloat) : loss).mul(scale_.value());
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  Progress& progress = progress_[&optimizer];
  if (progress.unscaled) {
    throw Error("unscale_ was called for this optimizer already since the last update(): its gradients are unscaled");
  }
  const at::NoGradGuard no_grad;
  bool found = false;
  auto* const taker = dynamic_cast<Optimizer*>(&optimizer);
  if (taker != nullptr && taker->takes_gradients()) {
    found = taker->unscale_gradients(1.0 / scale_.value());
  }
  for (const std::vector<at::Tensor>& gradients : gradients_of(optimizer)) {
    const auto options = gradients.front().options().dtype(at::kFloat);
    at::Tensor found_inf = at::zeros({1}, options);
    // The reciprocal is taken in float64 and rounded once, as PyTorch does.
    const at::Tensor inverse = at::full({1}, 1.0 / scale_.value(), options);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inverse);
    found |= found_inf.item<float>() != 0.0F;
  }
  progress.unscaled = true;
  progress.found_inf = on_any_rank(found);
}

bool GradScaler::on_any_rank(bool found) const {
  if (ranks_ == nullptr || ranks_->world_size() == 1) {
    return found;
  }
  at::Tensor ranks_with_inf = at::full({1}, found ? 1 : 0, at::kLong);
  ranks_->all_reduce(ranks_with_inf, distributed::Reduction::Sum);
  return ranks_with_inf.item<std::int64_t>() > 0;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (progress_[&optimizer].stepped) {
    throw Error("step was called for this optimizer already since the last update(): call update() after each step");
  }
  if (!progress_[&optimizer].unscaled) {
    unscale_(optimizer);
  }
  Progress& progress = progress_[&optimizer];
  progress.stepped = true;
  if (progress.found_inf) {
    ++skipped_steps_;
    if (auto* const wrapped = dynamic_cast<Optimizer*>(&optimizer)) {
      wrapped->skip_step();
    }
    return false;
  }
  optimizer.step();
  return true;
}

GradScaler::ClippedStep GradScaler::step_clipped(Optimizer& optimizer, double max_norm) {
  static_cast<void>(clip_factor(0.0, max_norm));  // Refuses before anything is read.
  Progress& progress = progress_[&optimizer];
  if (progress.stepped) {
    throw Error("step was called for this optimizer already since the last update(): call update() after each step");
  }
  if (optimizer.takes_gradients()) {
    throw Error("gradients that are taken are unscaled where they lie: call unscale_(), clip_grad_norm_() and step()");
  }
  const double inverse = progress.unscaled ? 1.0 : 1.0 / scale_.value();
  const double norm = gradient_norm(optimizer.all_parameters()) * inverse;
  // What unscale_ has found stands, also where gradients were mended since.
  progress.found_inf = on_any_rank(progress.found_inf || !std::isfinite(norm));
  progress.stepped = true;
  if (progress.found_inf) {
    ++skipped_steps_;
    optimizer.skip_step();
    return {false, norm};
  }
  optimizer.step_scaled({.factor = inverse, .clip_factor = clip_factor(norm, max_norm)});
  return {true, norm};
}

void GradScaler::update() {
  if (progress_.empty()) {
    throw Error("update was called without an unscale_ or step since the last one");
  }
  const bool found =
      std::any_of(progress_.begin(), progress_.end(), [](const auto& entry) { return entry.second.found_inf; });
  progress_.clear();
  scale_.update(found);
}

}  // namespace spillway::optimizer

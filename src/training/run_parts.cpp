#include <spillway/app/training/run_parts.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include <spillway/app/methods/moco.hpp>
#include <spillway/app/training/optimizer_factory.hpp>

namespace spillway::app {
namespace {

OptimizedParameters parameters_of(const TrainingMethod& method) {
  OptimizedParameters parameters;
  for (const NamedTensor& parameter : method.undecayed_parameters()) parameters.undecayed.push_back(parameter.tensor);
  for (const NamedTensor& parameter : method.parameters()) {
    const bool undecayed = std::ranges::any_of(
        parameters.undecayed, [&](const at::Tensor& other) { return other.is_same(parameter.tensor); });
    if (!undecayed) parameters.decayed.push_back(parameter.tensor);
  }
  return parameters;
}

OutsideBytes outside_bytes(const Config& config, const TrainingMethod& method, const optimizer::Optimizer& optimizer) {
  OutsideBytes outside;
  std::uint64_t numel = 0;
  for (const NamedTensor& parameter : method.parameters()) {
    outside.parameters += parameter.tensor.nbytes();
    numel += static_cast<std::uint64_t>(parameter.tensor.numel());
  }
  if (config.zero.offload_optimizer.device == OffloadDevice::kNone && !config.has_fused_update()) {
    const std::uint64_t owned = optimizer.takes_gradients() ? optimizer.gradient_placement().owned_numel : numel;
    outside.plain_state = state_tensor_count(config.optimizer) * (outside.parameters / numel) * owned;
  }
  return outside;
}

}  // namespace

RunParts::RunParts(const Config& config, const ImageSet& images, RunRanks& ranks, offload::LogSink log,
                   std::shared_ptr<offload::Trace> trace)
    : tiers_(make_tiers(config, std::move(log), trace)),
      method_(make_method(config, {images.width, images.height, images.channels}, tiers_, ranks.others())),
      optimizer_(make_optimizer(config, parameters_of(*method_), tiers_, ranks.gradient_groups())),
      step_(config, images, *method_, *optimizer_, ranks.all(), trace.get()),
      forecast_(config.has_bank() ? std::optional(bank_options(config)) : std::nullopt, optimizer_->next_step_bytes(),
                optimizer_->steady_step_bytes(), optimizer_->gradient_placement().disk_bytes,
                config.has_bank() ? std::optional(bank_length(config)) : std::nullopt, optimizer_->read_ahead_bytes()),
      outside_(outside_bytes(config, *method_, *optimizer_)) {
  // On several ranks each has the masters of its share alone: there all follow the parameters, which are the same.
  if (config.has_momentum_encoder() && ranks.alone()) {
    optimizer_->observe_masters([method = method_.get()](const at::Tensor& parameter, const at::Tensor& master) {
      method->master_changed(parameter, master);
    });
  }
}

std::vector<PlacementRow> RunParts::placement() {
  queue::NegativeBank* const bank = method_->bank();
  return placement_rows(bank == nullptr ? queue::BankPlacement() : bank->placement(), optimizer_->placement(),
                        optimizer_->gradient_placement());
}

RunTraffic predict_traffic(TrafficForecast forecast, const RunPlan& plan) {
  RunTraffic traffic;
  for (std::uint64_t index = 0; index < plan.steps(); ++index) {
    traffic.last = forecast.next(plan.window_rows(index));
    traffic.all.read += traffic.last.read;
    traffic.all.written += traffic.last.written;
  }
  return traffic;
}

}  // namespace spillway::app

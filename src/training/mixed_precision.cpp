#include <spillway/app/training/mixed_precision.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/autocast_mode.h>
#include <ATen/cpu/Utils.h>
#include <ATen/ops/tensor.h>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

/// That many steps in a row which overflow, where the scale can't be lowered, are the end: nothing is learnt any more.
constexpr unsigned kMostOverflows = 5;

optimizer::LossScaleOptions scale_options(const Config& config) {
  optimizer::LossScaleOptions options;
  options.overflows_at_min_max = kMostOverflows;
  if (!config.fp16.enabled) {
    options.min_scale = 1.0;
    return options;
  }
  const Fp16Config& fp16 = config.fp16;
  options.rule = optimizer::LossScaleRule::kDeepSpeed;
  if (fp16.loss_scale != 0.0) {
    options.init_scale = options.min_scale = fp16.loss_scale;
    options.growth_interval = std::numeric_limits<std::uint64_t>::max();
    return options;
  }
  options.init_scale = std::ldexp(1.0, static_cast<int>(fp16.initial_scale_power));
  options.growth_interval = fp16.loss_scale_window;
  options.min_scale = fp16.min_loss_scale;
  options.hysteresis =
      static_cast<unsigned>(std::min<std::uint64_t>(fp16.hysteresis, std::numeric_limits<unsigned>::max()));
  options.consecutive_hysteresis = fp16.consecutive_hysteresis;
  return options;
}

}  // namespace

AutocastScope::AutocastScope(const AutocastConfig& config) : on_(config.enabled) {
  if (!on_) return;
  before_ = at::autocast::is_autocast_enabled(at::kCPU);
  type_before_ = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, config.dtype == AutocastDtype::kFp16 ? at::kHalf : at::kBFloat16);
}

AutocastScope::~AutocastScope() {
  if (!on_) return;
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, before_);
  at::autocast::set_autocast_dtype(at::kCPU, type_before_);
}

MixedPrecision::MixedPrecision(const Config& config, distributed::Collective& ranks)
    : may_skip_(config.may_skip_steps()) {
  if (config.has_loss_scale()) scaler_.emplace(scale_options(config), &ranks);
}

double MixedPrecision::clip(optimizer::Optimizer& optimizer, double max_norm) {
  if (scaler_) scaler_->unscale_(optimizer);
  return optimizer.clip_grad_norm_(max_norm);
}

bool MixedPrecision::step(optimizer::Optimizer& optimizer, double norm) {
  if (scaler_) {
    const bool made = scaler_->step(optimizer);
    scaler_->update();
    return made;
  }
  if (std::isfinite(norm)) {
    overflows_ = 0;
    optimizer.step();
    return true;
  }
  SPILLWAY_CHECK(may_skip_, "gradients that are not finite are an error in this run");
  optimizer.skip_step();
  if (++overflows_ >= kMostOverflows) {
    throw Error(std::to_string(overflows_) +
                " steps in a row were skipped, as their gradients were not finite: lower optimizer.params.lr or set "
                "gradient_clipping");
  }
  return false;
}

at::Tensor MixedPrecision::state() const {
  if (!may_skip_) return {};
  const optimizer::LossScale::State scale = scaler_ ? scaler_->state() : optimizer::LossScale::State{};
  return at::tensor({scale.value, static_cast<double>(scale.good_steps), static_cast<double>(scale.hysteresis_left),
                     static_cast<double>(scale.overflows_at_min), static_cast<double>(overflows_)},
                    at::TensorOptions(at::kDouble));
}

void MixedPrecision::restore(const at::Tensor& state) {
  const auto* const values = state.const_data_ptr<double>();
  overflows_ = static_cast<unsigned>(values[4]);
  if (!scaler_) return;
  scaler_->restore({.value = values[0],
                    .good_steps = static_cast<std::uint64_t>(values[1]),
                    .hysteresis_left = static_cast<unsigned>(values[2]),
                    .overflows_at_min = static_cast<unsigned>(values[3])});
}

std::optional<std::string> slow_precision(const Config& config) {
  const bool half = config.has_loss_scale();
  if (!half && !config.bf16.enabled && !config.torch_autocast.enabled) return std::nullopt;
  const auto capabilities = at::cpu::get_cpu_capabilities();
  const auto has = [&](const char* name) {
    const auto found = capabilities.find(name);
    return found != capabilities.end() && found->second.isBool() && found->second.toBool();
  };
  // What other processors are called there is not fixed.
  if (!has("sse2") || (half ? has("avx512_fp16") || has("amx_fp16") : has("avx512_bf16") || has("amx_bf16"))) {
    return std::nullopt;
  }
  return std::string("this processor has no instructions for ") +
         (half ? "float16 (AVX512-FP16, AMX-FP16)" : "bfloat16 (AVX512-BF16, AMX-BF16)") +
         ": LibTorch computes it several times as slowly as float32";
}

}  // namespace spillway::app

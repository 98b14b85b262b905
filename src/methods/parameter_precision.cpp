#include <spillway/app/methods/parameter_precision.hpp>

#include <algorithm>
#include <set>
#include <string>

#include <ATen/core/grad_mode.h>

namespace spillway::app {
namespace {

std::string layer_of(const std::string& parameter) { return parameter.substr(0, parameter.rfind('.')); }

}  // namespace

void set_precision(const std::vector<NamedTensor>& parameters, const Config& config) {
  if (!config.has_16_bit_parameters()) return;
  std::set<std::string> kept;
  for (const NamedTensor& parameter : parameters) {
    const bool named = std::ranges::any_of(config.encoder.float32_layers, [&](const std::string& part) {
      return parameter.name.find(part) != std::string::npos;
    });
    if (named) kept.insert(layer_of(parameter.name));
  }
  const at::NoGradGuard no_grad;
  const at::ScalarType type = config.fp16.enabled ? at::kHalf : at::kBFloat16;
  for (const NamedTensor& parameter : parameters) {
    if (!kept.contains(layer_of(parameter.name))) parameter.tensor.set_data(parameter.tensor.to(type));
  }
}

ProjectedEncoder make_network(const Config& config, ImageGeometry geometry) {
  ProjectedEncoder network(config.encoder, config.contrastive, geometry);
  set_precision(network.parameters(), config);
  return network;
}

}  // namespace spillway::app

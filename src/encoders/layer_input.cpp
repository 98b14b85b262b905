#include <spillway/app/encoders/layer_input.hpp>

#include <ATen/autocast_mode.h>

namespace spillway::app {

at::Tensor input_of(const at::Tensor& weight, const at::Tensor& x) {
  const bool autocast = at::autocast::is_autocast_enabled(x.device().type());
  return autocast ? x : x.to(weight.scalar_type());
}

}  // namespace spillway::app
